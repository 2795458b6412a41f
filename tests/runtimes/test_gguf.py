"""GGUF files answer in llama.cpp as our models do, tokens and all."""

import pytest
import torch

import hf_tformer
from conversion import ConversionError, import_checkpoint
from conversion.command import main
from conversion.runtimes.exporting import export_to_runtime
from conversion.runtimes.gguf import packing, tensors
from conversion.runtimes.gguf.file import GgufFile
from conversion.runtimes.gguf.running import LlamaCpp
from support.gguf_models import (
    DECODERS,
    DECODERS_AND_PAIRS,
    decoder_fields,
    drawn,
    small_decoder,
)
from support.parity import randomise
from support.parity_encoder import CASES as ENCODERS
from support.trained_tokenizers import KNOWN, like_bert, like_sentencepiece

pytestmark = pytest.mark.runtime
pytest.importorskip("gguf")
pytest.importorskip("cyllama")


@pytest.fixture(scope="module")
def tokenizer():
    return KNOWN["language model"][0]()


def save_decoder(folder, tokenizer, **options):
    small_decoder(tokenizer, **options).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def assert_proven(done, texts=3, most=5e-3):
    assert done.proof.difference <= most * max(1, done.proof.largest)
    assert done.proof.equal_texts == {1: (texts, texts)}


@pytest.mark.parametrize("form", DECODERS)
def test_each_architecture_answers_as_ours(form, tokenizer, tmp_path):
    fields = decoder_fields(form, len(tokenizer) + 2)
    save_decoder(tmp_path / "ours", tokenizer, learns=form != "olmo", **fields)
    assert_proven(export_to_runtime(tmp_path / "ours", tmp_path / "theirs", "gguf"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", DECODERS)
def test_what_is_not_refused_by_name_is_proven(form, seed, tokenizer, tmp_path):
    fields = drawn(decoder_fields(form, len(tokenizer) + 2), f"{form} {seed}")
    if fields is None:
        pytest.skip("ours refuses these fields together")
    save_decoder(tmp_path / "ours", tokenizer, learns=form != "olmo", **fields)
    refused = None
    try:
        assert_proven(export_to_runtime(tmp_path / "ours", tmp_path / "theirs", "gguf"))
    except ConversionError as error:
        refused = str(error)
    assert refused is None or "llama.cpp has no architecture for this model" in refused
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("rope_type", ["linear", "yarn", "llama3"])
def test_rotations_are_scaled_as_ours(rope_type, tokenizer, tmp_path):
    more = {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if rope_type == "llama3" else {}
    if rope_type != "linear":
        more["original_max_position_embeddings"] = 8
    rope = {"rope_type": rope_type, "rope_theta": 100.0, "factor": 4.0, **more}
    save_decoder(tmp_path / "ours", tokenizer, rope_parameters=rope)
    assert_proven(export_to_runtime(tmp_path / "ours", tmp_path / "theirs", "gguf"))


def save_encoder_decoder(name, folder, tokenizer, seed=0):
    case = DECODERS_AND_PAIRS[name]
    options = {**case.theirs, "vocab_size": len(tokenizer) + 2, "eos_token_id": 0}
    options |= {"num_layers": 3, "num_decoder_layers": 2}
    theirs = randomise(case.build_one(case.their_classes, options), seed).eval()
    theirs.save_pretrained(folder / "theirs")
    import_checkpoint(folder / "theirs", folder / "ours", tokenizer=tokenizer)


@pytest.mark.parametrize("seed", range(3))  # some make more of a table in float16 than others
@pytest.mark.parametrize("name", ["t5", "t5 flan", "t5 tied unscaled", "umt5"])
def test_encoder_decoders_answer_as_ours(name, seed, tokenizer, tmp_path):
    save_encoder_decoder(name, tmp_path, tokenizer, seed)
    most = 2e-2 if name == "umt5" else 5e-3  # of what its random weights make of that table
    assert_proven(export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf"), most=most)
    assert not (tmp_path / "out/Modelfile").exists()  # which Ollama could not run


def test_a_table_in_float16_excuses_no_more_than_it_explains(tokenizer, tmp_path, monkeypatch):
    """One gain is a tenth too large."""
    save_encoder_decoder("umt5", tmp_path, tokenizer)
    lay_out = tensors.laid_out

    def off(*args):
        for name, tensor in lay_out(*args):
            yield name, tensor * 1.1 if name == "dec.blk.0.ffn_norm.weight" else tensor

    monkeypatch.setattr(tensors, "laid_out", off)
    with pytest.raises(ConversionError, match="more than rounding explains"):
        export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["bert Model", "roberta Model", "distilbert Model"])
def test_encoders_give_the_same_hidden_states(name, tmp_path):
    case, words = ENCODERS[name], like_bert()
    theirs = case.build_one(case.their_classes, {**case.theirs, "vocab_size": len(words) + 2})
    randomise(theirs).eval().save_pretrained(tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", tokenizer=words)
    done = export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf")
    assert done.proof.difference < 5e-3 * done.proof.largest


@pytest.mark.parametrize("name", KNOWN)
def test_each_kind_of_tokenizer_gives_our_ids(name, tmp_path):
    make, _ = KNOWN[name]
    tokenizer = make()
    save_decoder(tmp_path / "ours", tokenizer, eos_token_id=tokenizer.eos_token_id or 0)
    export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf")
    assert ids(tmp_path / "out", "Cats sat.") == tokenizer("Cats sat.")["input_ids"]


def ids(folder, text):
    return LlamaCpp(folder / "model.gguf", None).ids(text)


def test_another_tokenizer_than_the_file_holds_is_noticed(tokenizer, tmp_path, monkeypatch):
    """The ids are asked of llama.cpp itself, not of what was written into the file."""
    save_decoder(tmp_path / "ours", tokenizer)
    name = "conversion.runtimes.gguf.tokenizer.recognise"
    monkeypatch.setattr(name, lambda pre_tokenizer, ignores_merges: "qwen2")
    with pytest.raises(ConversionError, match=r"has other ids for a text"):
        export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "q8_0"])
def test_smaller_numbers_are_near(dtype, tokenizer, tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32, "num_attention_heads": 3}
    save_decoder(tmp_path / "ours", tokenizer, **sizes)
    done = export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf", dtype=dtype)
    assert 0 < done.proof.difference < done.runtime.tolerance[dtype] * done.proof.largest
    weights = (tmp_path / "ours/model.safetensors").stat().st_size
    size = (tmp_path / "out/model.gguf").stat().st_size
    assert size < weights * (0.4 if dtype == "q8_0" else 0.62)


WIDE = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64, "num_attention_heads": 3}
KINDS = {"q6_k": "Q6_K", "q5_k_m": "Q5_K", "q4_k_m": "Q4_K", "q4_0": "Q4_0"}


@pytest.mark.parametrize("dtype", packing.FEW_BITS)
def test_few_bits_are_packed_by_llama_cpp_after_the_proof(dtype, tokenizer, tmp_path):
    save_decoder(tmp_path / "ours", tokenizer, **WIDE)
    done = export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf", dtype=dtype)
    assert_proven(done)  # in float32
    assert done.proof.is_packed
    assert done.proof.few_bits.usual > 0
    file = GgufFile(tmp_path / "out/model.gguf")
    assert KINDS[dtype] in {tensor.tensor_type.name for tensor in file.packed.values()}
    weights = (tmp_path / "ours/model.safetensors").stat().st_size
    assert (tmp_path / "out/model.gguf").stat().st_size < weights * 0.4
    assert "proven in float32 and packed" in (tmp_path / "out/README.md").read_text()
    back = import_checkpoint(tmp_path / "out/model.gguf", tmp_path / "back")
    assert "llama.cpp computes the same" in back.read_by


def test_packed_numbers_of_another_model_are_refused_by_name(tokenizer, tmp_path, monkeypatch):
    """As a quantiser would make them that mistook a row or a block."""
    for name in ("ours", "other"):
        save_decoder(tmp_path / name, tokenizer, **WIDE)
    model = hf_tformer.TformerDecoderForCausalLM.from_pretrained(tmp_path / "other")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.mul_(-1)
    model.save_pretrained(tmp_path / "other")
    export_to_runtime(tmp_path / "other", tmp_path / "exported", "gguf", verify=False)
    quantise = packing.quantise
    other = tmp_path / "exported/model.gguf"
    monkeypatch.setattr(packing, "quantise", lambda path, *rest: quantise(other, *rest))
    monkeypatch.setattr(packing, "OF_PACKING", ("GGUF.", "general."))  # its name is another
    with pytest.raises(ConversionError, match=r"blk\.1\.ffn_up\.weight was packed as Q4_K .* 2"):
        export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf", dtype="q4_k_m")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_proven_is_not_kept(tokenizer, tmp_path, monkeypatch):
    """One tensor in another layout is enough."""
    save_decoder(tmp_path / "ours", tokenizer)
    name = "conversion.runtimes.gguf.layouts.RotaryPairs.inverse"
    monkeypatch.setattr(name, lambda self, tensors, config: tensors)
    with pytest.raises(ConversionError, match=r"outputs of llama\.cpp differ"):
        export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_sharded_weights_make_one_file(tokenizer, tmp_path):
    save_decoder(tmp_path / "ours", tokenizer)
    model = hf_tformer.TformerDecoderForCausalLM.from_pretrained(tmp_path / "ours")
    (tmp_path / "ours/model.safetensors").unlink()
    model.save_pretrained(tmp_path / "ours", max_shard_size="20KB")
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 2
    assert_proven(export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf"))


def test_the_lines_of_the_card_run(tokenizer, tmp_path, monkeypatch, capfd):
    save_decoder(tmp_path / "ours", tokenizer)
    assert main(["export", str(tmp_path / "ours"), str(tmp_path / "out"), "--to", "gguf"]) == 0
    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    program = card.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    exec(program, {})
    assert capfd.readouterr().out.strip()
    assert "FROM ./model.gguf\nPARAMETER num_ctx 2048\n" in (tmp_path / "out/Modelfile").read_text()


def test_the_newest_llama_cpp_writes_the_same(tokenizer, tmp_path):
    """cyllama is some months behind; xllamacpp is not, but shows no logits."""
    xllamacpp = pytest.importorskip("xllamacpp")
    save_decoder(tmp_path / "ours", tokenizer, eos_token_id=len(tokenizer) - 1)
    export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(tmp_path / "out/model.gguf")
    params.n_ctx, params.n_parallel, params.warmup = 512, 1, False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    prompt = tokenizer("the cat sat")["input_ids"]
    model = hf_tformer.TformerDecoderForCausalLM.from_pretrained(tmp_path / "ours")
    written = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0].tolist()
    compared = 0
    for i in range(len(prompt), len(written)):
        asked = {"prompt": written[:i], "max_tokens": 1, "temperature": 0.0, "logprobs": 1}
        said = server.handle_completions(asked)["choices"][0]["logprobs"]
        if said is not None:  # as for a part of a character
            compared += 1
            assert said["content"][0]["id"] == written[i]
    assert compared > 3


def test_a_token_of_the_user_is_one_token(tmp_path):
    tokenizer = KNOWN["token of the user"][0]()
    save_decoder(tmp_path / "ours", tokenizer)
    export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf")
    assert ids(tmp_path / "out", "a naïve café b") == tokenizer("a naïve café b")["input_ids"]


def test_unknown_characters_become_bytes(tmp_path):
    tokenizer = like_sentencepiece(prefix=True)
    save_decoder(tmp_path / "ours", tokenizer, eos_token_id=2)
    export_to_runtime(tmp_path / "ours", tmp_path / "out", "gguf")
    assert ids(tmp_path / "out", "Ω") == tokenizer("Ω")["input_ids"]
