"""A GGUF file becomes a folder of ours: the same configuration, numbers, token ids and logits."""

import contextlib
import random

import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

import hf_tformer
from conversion import ConversionError, import_checkpoint
from conversion.command import main
from conversion.engine.registry import our_side
from conversion.runtimes.exporting import export_to_runtime
from conversion.runtimes.gguf import layouts, proving
from conversion.runtimes.gguf.file import GgufFile
from conversion.runtimes.gguf.pre_tokenizers import TEXT
from conversion.runtimes.gguf.runtime import Gguf
from conversion.runtimes.gguf.tokenizer import BLANK, UNUSED
from conversion.runtimes.runtime import Source
from support.converting import CASES as PAIRS
from support.gguf_files import changed
from support.gguf_models import DECODERS, decoder_fields, small_decoder
from support.parity import randomise
from support.parity_encoder import CASES as ENCODERS
from support.trained_tokenizers import KNOWN, like_bert, like_t5

pytestmark = pytest.mark.runtime
gguf = pytest.importorskip("gguf")
pytest.importorskip("cyllama")

# Rows of K-quants have whole blocks of 256 numbers.
WIDE = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4}
# llama.cpp's numbers of what its quantiser writes.
FILE_TYPES = {
    **{"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9},
    **{"Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18},
}
PROVEN = "llama.cpp computes the same token ids and "
# What makes no difference to what is computed, or has no place in a file.
FREE = {
    *("architectures", "auto_map", "dtype", "transformers_version", "initializer_range"),
    *("_name_or_path", "dropout", "attention_dropout", "embedding_dropout"),
    *("bos_token_id", "pad_token_id"),
}


@pytest.fixture(scope="module")
def tokenizer():
    return KNOWN["language model"][0]()


def write(folder, tokenizer, dtype="float32", **options):
    """A random model as a GGUF file."""
    model = small_decoder(tokenizer, **options)
    model.save_pretrained(folder / "ours")
    library = our_side(folder / "ours", "tformer_decoder")
    source = Source(folder / "ours", library, model.config, dtype, tokenizer)
    (folder / "file").mkdir()
    Gguf().write(source, folder / "file")
    return model, folder / "file/model.gguf"


def opened(folder):
    return hf_tformer.TformerDecoderForCausalLM.from_pretrained(folder).eval()


def logits(model):
    ids = torch.arange(2, 20).view(2, 9)
    with torch.no_grad():
        return model(ids).logits


def meaning(config):
    """Everything that changes an answer, in one spelling."""
    found = {name: value for name, value in config.to_dict().items() if name not in FREE}
    found["attention_scale"] = config.attention_scale or config.head_dim**-0.5
    rope = dict(found.get("rope_parameters") or {})
    if rope.get("rope_type") == "yarn":
        rope = {"beta_fast": 32.0, "beta_slow": 1.0, **rope}
    found["hidden_act"] = found["hidden_act"].replace("gelu_pytorch_tanh", "gelu_new")
    return {**found, "rope_parameters": rope}


@pytest.mark.parametrize("form", DECODERS)
def test_each_architecture_comes_back_as_it_was(form, tokenizer, tmp_path):
    fields = decoder_fields(form, len(tokenizer) + 2)
    model, path = write(tmp_path, tokenizer, learns=form != "olmo", **fields)
    done = import_checkpoint(path, tmp_path / "back")
    back = opened(tmp_path / "back")
    assert meaning(back.config) == meaning(model.config)
    torch.testing.assert_close(logits(back), logits(model), rtol=1e-5, atol=1e-5)
    assert PROVEN in done.read_by
    assert AutoTokenizer.from_pretrained(tmp_path / "back")(TEXT) == tokenizer(TEXT)


@pytest.mark.parametrize("rope_type", ["linear", "yarn", "llama3"])
def test_rotations_come_back_as_they_were(rope_type, tokenizer, tmp_path):
    more = {"original_max_position_embeddings": 8} if rope_type == "yarn" else {}
    if rope_type == "llama3":
        more = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
        more["original_max_position_embeddings"] = 8192
    rope = {"rope_type": rope_type, "rope_theta": 500000.0, "factor": 4.0, **more}
    model, path = write(tmp_path, tokenizer, rope_parameters=rope, head_dim=64)
    import_checkpoint(path, tmp_path / "back")
    assert meaning(opened(tmp_path / "back").config) == meaning(model.config)


def test_frequencies_of_another_kind_are_refused(tokenizer, tmp_path):
    rope = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 2.0, "original_max_position_embeddings": 64}
    _, path = write(tmp_path, tokenizer, rope_parameters=rope, head_dim=64)
    with pytest.raises(ConversionError, match="lowers frequencies in another way"):
        import_checkpoint(path, tmp_path / "back")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_exact_in_half_precision_stays_so(dtype, tokenizer, tmp_path):
    model, path = write(tmp_path, tokenizer, dtype)
    import_checkpoint(path, tmp_path / "back")
    back = opened(tmp_path / "back")
    assert back.config.dtype == torch.float32  # which random norms need
    rounded = model.to(getattr(torch, dtype)).state_dict()
    found = back.state_dict()["model.layers.0.mlp.down_proj.weight"]
    assert torch.equal(found, rounded["model.layers.0.mlp.down_proj.weight"].float())


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
@pytest.mark.parametrize("tied", [True, False])
def test_numbers_of_few_bits_are_unpacked(kind, tied, tokenizer, tmp_path):
    _, path = write(tmp_path, tokenizer, **WIDE, tie_word_embeddings=tied)
    packed = quantised(path, kind)
    done = import_checkpoint(packed, tmp_path / "back")
    assert PROVEN in done.read_by
    assert opened(tmp_path / "back").config.tie_word_embeddings is tied


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K"])
def test_what_llama_cpp_has_quantised_is_unpacked(kind, tokenizer, tmp_path):
    model, path = write(tmp_path, tokenizer, **WIDE)
    done = import_checkpoint(quantised(path, kind), tmp_path / "back")
    assert PROVEN in done.read_by
    back = logits(opened(tmp_path / "back"))
    assert torch.corrcoef(torch.stack((back.flatten(), logits(model).flatten())))[0, 1] > 0.3


def quantised(path, kind):
    """The file as llama.cpp's own quantiser writes it."""
    from cyllama.llama import llama_cpp

    params = llama_cpp.LlamaModelQuantizeParams()
    params.ftype = FILE_TYPES[kind]
    packed = path.with_name(f"{kind}.gguf")
    llama_cpp.model_quantize(str(path), str(packed), params)
    held = {tensor.tensor_type.name for tensor in GgufFile(packed).packed.values()}
    assert held & {kind.removesuffix("_M")}, held
    return packed


@pytest.mark.parametrize("name", KNOWN)
def test_each_kind_of_tokenizer_has_its_ids_again(name, tmp_path):
    tokenizer = KNOWN[name][0]()
    _, path = write(tmp_path, tokenizer, eos_token_id=tokenizer.eos_token_id or 0)
    import_checkpoint(path, tmp_path / "back")
    back = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert back(TEXT)["input_ids"] == tokenizer(TEXT)["input_ids"]
    kept = tokenizer.special_tokens_map
    assert kept.items() <= back.special_tokens_map.items()


OTHERS = {"of another kind": "rwkv", "that llama.cpp changes": "bert"}


@pytest.mark.parametrize("why", OTHERS)
def test_a_tokenizer_that_is_not_read_is_refused_unless_one_is_given(why, tokenizer, tmp_path):
    _, path = write(tmp_path, tokenizer)
    path = changed(path, tokenizer__ggml__model=OTHERS[why], tokenizer__ggml__unknown_token_id=0)
    with pytest.raises(ConversionError, match="give the tokenizer of the model with --tokenizer"):
        import_checkpoint(path, tmp_path / "back")
    tokenizer.save_pretrained(tmp_path / "theirs")
    import_checkpoint(path, tmp_path / "back", tokenizer=tmp_path / "theirs")
    assert AutoTokenizer.from_pretrained(tmp_path / "back")("a b") == tokenizer("a b")


# Encoders, and encoder-decoders


def write_other(folder, name, **wide):
    """A random encoder or encoder-decoder of ours, and the same as a GGUF file."""
    if name in ENCODERS:
        case, tokenizer, more = ENCODERS[name], like_bert(), {}
    else:
        case, tokenizer = PAIRS[name], like_t5()
        more = {"eos_token_id": 1, "num_layers": 3, "num_decoder_layers": 2}
    options = {**case.theirs, "vocab_size": len(tokenizer) + 2, **more, **wide}
    theirs = randomise(case.build_one(case.their_classes, options)).eval()
    theirs.save_pretrained(folder / "theirs")
    import_checkpoint(folder / "theirs", folder / "ours", tokenizer=tokenizer)
    export_to_runtime(folder / "ours", folder / "file", "gguf")
    return tokenizer, folder / "file/model.gguf"


OTHER_KINDS = ["bert Model", "roberta Model", "distilbert Model"]
OTHER_KINDS += ["t5", "t5 flan", "t5 tied unscaled", "umt5"]


@pytest.mark.parametrize("name", OTHER_KINDS)
def test_encoders_and_encoder_decoders_come_back_as_they_were(name, tmp_path):
    tokenizer, path = write_other(tmp_path, name)
    done = import_checkpoint(path, tmp_path / "back")
    assert PROVEN in done.read_by
    assert done.difference < 1e-4
    auto = AutoModel if name in ENCODERS else AutoModelForSeq2SeqLM
    before, back = (auto.from_pretrained(tmp_path / x).eval() for x in ("ours", "back"))
    batch = {"input_ids": torch.arange(4, 20).view(2, 8)}
    batch |= {} if name in ENCODERS else {"decoder_input_ids": torch.arange(5, 17).view(2, 6)}
    with torch.no_grad():
        torch.testing.assert_close(back(**batch)[0], before(**batch)[0], rtol=1e-4, atol=1e-5)
    again = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert again(TEXT)["input_ids"] == tokenizer(TEXT)["input_ids"]
    assert again.special_tokens_map == tokenizer.special_tokens_map


def test_what_other_programs_write_for_bert_is_read(tmp_path):
    """Tokens in brackets are bare there, [CLS] has its own field, and a pooling is named."""
    tokenizer, path = write_other(tmp_path, "bert Model")
    tokens = [x if x != f"{BLANK}z" else "[unused1]" for x in told_of(path)["tokens"]]
    fields = {"tokenizer__ggml__tokens": tokens, "bert__pooling_type": 1}
    done = import_checkpoint(changed(path, **fields), tmp_path / "back")
    assert "by its mean" in done.left_out[0]
    back, expected = AutoTokenizer.from_pretrained(tmp_path / "back"), dict(tokenizer.get_vocab())
    expected["[unused1]"] = expected.pop("z")
    assert back.get_vocab() == expected
    pair = back("the cat", "sat")
    assert back.convert_ids_to_tokens(pair["input_ids"]).count("[SEP]") == 2
    assert set(pair["token_type_ids"]) == {0, 1}


def test_what_other_programs_write_for_t5_is_read(tmp_path):
    """A second name of the epsilon, and a table that no graph reads."""
    _, path = write_other(tmp_path, "t5")
    epsilon = told_of(path, "t5.")["attention.layer_norm_rms_epsilon"]
    table = {"dec.blk.0.cross_attn_rel_b.weight": torch.randn(4, 32)}
    fields = {"t5__attention__layer_norm_epsilon": epsilon}
    done = import_checkpoint(changed(path, table, **fields), tmp_path / "back")
    assert PROVEN in done.read_by


def test_tokens_behind_one_without_a_use_keep_their_ids(tmp_path):
    tokenizer, path = write_other(tmp_path, "t5")
    kinds = list(told_of(path)["token_type"])
    kinds[tokenizer.convert_tokens_to_ids(f"{BLANK}")] = UNUSED
    import_checkpoint(changed(path, tokenizer__ggml__token_type=kinds), tmp_path / "back")
    assert AutoTokenizer.from_pretrained(tmp_path / "back").get_vocab() == tokenizer.get_vocab()


def told_of(path, prefix="tokenizer.ggml."):
    return GgufFile(path).below(prefix)


IN_BLOCKS = {
    "bert Model": {"hidden_size": 96, "intermediate_size": 64},
    "t5": {"d_model": 32, "num_heads": 4, "d_kv": 8, "d_ff": 64},
}


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_encoders_of_few_bits_are_unpacked(name, tmp_path):
    _, path = write_other(tmp_path, name, **IN_BLOCKS[name])
    packed = import_checkpoint(quantised(path, "Q8_0"), tmp_path / "back")
    assert PROVEN in packed.read_by


def test_chat_template_and_end_tokens_come_along(tmp_path):
    tokenizer = KNOWN["language model"][0]()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    _, path = write(tmp_path, tokenizer, eos_token_id=[0, 3])
    import_checkpoint(path, tmp_path / "back")
    back = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert back.chat_template == tokenizer.chat_template
    assert opened(tmp_path / "back").generation_config.eos_token_id == [0, 3]


# What is refused, or found out


CHANGES = {
    "llama.expert_count is 8": {"llama__expert_count": 8},
    "rope.scaling.type is 'longrope'": {"llama__rope__scaling__type": "longrope"},
    "tokenizer.ggml.pre is 'of-nobody'": {"tokenizer__ggml__pre": "of-nobody"},
    "one of 3 parts": {"split__count": 3},
    "has the shape [20, 24], where its fields ask for [36, 24]": {"llama__feed_forward_length": 36},
}


@pytest.mark.parametrize("said", CHANGES)
def test_what_a_file_says_beyond_what_is_read_is_refused_by_name(said, tokenizer, tmp_path):
    _, path = write(tmp_path, tokenizer)
    with pytest.raises(ConversionError) as caught:
        import_checkpoint(changed(path, **CHANGES[said]), tmp_path / "back")
    assert said in str(caught.value)
    assert not (tmp_path / "back").exists()


def test_an_architecture_that_is_not_read_is_named_with_those_that_are(tmp_path):
    with contextlib.closing(gguf.GGUFWriter(tmp_path / "a.gguf", "mamba")) as writer:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    with pytest.raises(ConversionError, match=r"'mamba' in .*a.gguf.*llama, .*qwen3"):
        import_checkpoint(tmp_path / "a.gguf", tmp_path / "back")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_file_that_ends_too_early_is_one_sentence(share, tokenizer, tmp_path, capsys):
    _, path = write(tmp_path, tokenizer)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert main(["import", str(path), str(tmp_path / "back")]) == 1
    told = capsys.readouterr().err
    assert "fetch it again" in told
    assert "Traceback" not in told
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_header_is_one_sentence_or_harmless(seed, tokenizer, tmp_path):
    """Bytes of the header that were changed, as by a disk: no traceback, nothing half-written."""
    _, path = write(tmp_path, tokenizer)
    content, chosen = bytearray(path.read_bytes()), random.Random(seed)
    end = content.index(b"tokenizer.ggml.tokens") if seed % 2 else len(content) // 3
    for _ in range(chosen.choice((1, 1, 4, 20))):
        content[chosen.randrange(4, end)] = chosen.randrange(256)
    path.write_bytes(content)
    with contextlib.suppress(ConversionError):
        import_checkpoint(path, tmp_path / "back", verify=False)
        return
    assert not (tmp_path / "back").exists()


def test_the_only_file_of_a_folder_is_taken_and_of_several_one_is_to_be_chosen(tokenizer, tmp_path):
    _, path = write(tmp_path, tokenizer)
    import_checkpoint(path.parent, tmp_path / "back")
    path.with_name("other.gguf").write_bytes(path.read_bytes())
    with pytest.raises(ConversionError, match="holds 2 GGUF files: choose one"):
        import_checkpoint(path.parent, tmp_path / "again")


def test_a_file_says_what_it_holds(tokenizer, tmp_path):
    _, path = write(tmp_path, tokenizer)
    with pytest.raises(ConversionError, match="give no format and no settings"):
        import_checkpoint(path, tmp_path / "back", format="llama")


def unturned(tensors, config):
    return tensors


FAULTS = {
    "rotation in another order": (layouts.RotaryPairs, "forward", unturned),
    "a norm without its offset": (layouts.OneMore, "forward", unturned),
    "heads side by side": (layouts.SideBySide, "forward", unturned),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_is_read_wrongly_is_found_out(fault, tokenizer, tmp_path, monkeypatch):
    form = {"rotation in another order": "llama", "a norm without its offset": "gemma"}
    fields = decoder_fields(form.get(fault, "gpt_neox"), len(tokenizer) + 2)
    _, path = write(tmp_path, tokenizer, **fields)
    owner, name, wrong = FAULTS[fault]
    monkeypatch.setattr(owner, name, lambda self, tensors, config: wrong(tensors, config))
    with pytest.raises(ConversionError, match=r"llama\.cpp computes other logits"):
        import_checkpoint(path, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_other_token_ids_are_found_out(tokenizer, tmp_path, monkeypatch):
    _, path = write(tmp_path, tokenizer)
    monkeypatch.setattr(proving.LlamaCpp, "ids", lambda self, text: [0, 1, 2])
    with pytest.raises(ConversionError, match="other ids for a text"):
        import_checkpoint(path, tmp_path / "back")


def test_a_link_out_of_a_folder_is_not_followed(tokenizer, tmp_path):
    _, path = write(tmp_path, tokenizer)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/model.gguf").symlink_to(path)
    with pytest.raises(ConversionError, match="leads out of its folder"):
        import_checkpoint(tmp_path / "linked", tmp_path / "new")
    assert not (tmp_path / "new").exists()
