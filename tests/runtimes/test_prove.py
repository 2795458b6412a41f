"""`tformer prove`: faults of other people's converters are found and named, and nothing else is."""

import itertools
import json
import re
import shutil

import pytest
import torch

from conversion import ConversionError, export_checkpoint, import_checkpoint, prove
from conversion.proving.answer import DIFFERS
from conversion.proving.command import main
from conversion.runtimes.gguf.file import GgufFile
from support.converting import CASES
from support.converting_encoders import CASES as ENCODERS
from support.gguf_files import changed
from support.gguf_models import DECODERS, decoder_fields, small_decoder
from support.parity import randomise
from support.planted_faults import FAULTS, each, of_config
from support.trained_tokenizers import KNOWN, like_bert

pytestmark = pytest.mark.runtime
pytest.importorskip("gguf")
pytest.importorskip("cyllama")
ctranslate2 = pytest.importorskip("ctranslate2")

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Rows of whole blocks, and of K-quants.
WIDE = {
    **{"hidden_size": 256, "intermediate_size": 256, "head_dim": 64},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}


@pytest.fixture(scope="module")
def tokenizer():
    made = KNOWN["llama 3"][0]()
    made.chat_template = TEMPLATE
    return made


def model_folders(folder, tokenizer, form, **fields):
    """A random model of ours, and the same in a class of transformers."""
    fields = {**decoder_fields(form, len(tokenizer) + 2), **fields}
    model = small_decoder(tokenizer, learns=form != "olmo", **fields)
    model.generation_config.eos_token_id = 0
    model.save_pretrained(folder / "ours")
    tokenizer.save_pretrained(folder / "ours")
    export_checkpoint(folder / "ours", folder / "theirs", form, verify=False)
    return folder / "theirs"


def file_of(folder, to, dtype=None):
    """The file that a runtime opens, made of a folder of transformers, faults and all."""
    if to == "transformers":
        return folder
    ours, made = folder.with_name("again"), folder.with_name(f"{to} {dtype}")
    if not ours.exists():
        import_checkpoint(folder, ours, verify=False)
    if not made.exists():
        export_checkpoint(ours, made, to, dtype=dtype, verify=False)
    return made / "model.gguf" if to == "gguf" else made


def wrong(done):
    return [answer for answer in done.answers if answer.verdict == DIFFERS]


# What a runtime cannot express is refused when it is exported, and cannot be planted there.
UNEXPRESSED = {("activation", "gguf"), ("lowercase", "gguf"), ("words", "gguf")}
IN_GRAPHS = (
    *("rotation order", "gate and up", "zeros", "norms plus one", "theta", "epsilon", "scaling"),
    *("soft cap", "window", "activation", "multiplier", "parallel", "no beginning"),
)
PLANTED = [
    *((fault, "transformers") for fault in FAULTS),
    *((fault, "gguf") for fault in FAULTS if (fault.name, "gguf") not in UNEXPRESSED),
    *((fault, "onnx") for fault in FAULTS if fault.name in IN_GRAPHS),
]
# Where a file does not show its tensors, it is seen that they are wrong, and not how.
UNNAMED = {("zeros", "onnx")}


@pytest.mark.parametrize(
    ("fault", "to"), PLANTED, ids=[f"{fault.name} in {to}" for fault, to in PLANTED]
)
def test_a_planted_fault_is_found_and_named(fault, to, tokenizer, faults, tmp_path):
    theirs = model_folders(tmp_path, tokenizer, fault.form, **fault.fields)
    faulty = shutil.copytree(theirs, tmp_path / "faulty")
    fault.plant(faulty)
    faults[fault.name, to] = "not found"
    found = wrong(prove(theirs, file_of(faulty, to)))
    assert found
    if to == "transformers":
        assert any(re.search(fault.asked, one.question) for one in found), found
    cause = "none of the usual" if (fault.name, to) in UNNAMED else fault.cause
    named = [one for one in found if re.search(cause, f"{one.seen} {one.cause}")]
    assert named, found
    words = (words for words in (named[0].cause, named[0].seen) if re.search(cause, words))
    faults[fault.name, to] = f"{named[0].question}: {next(words)}".replace("|", "/")


GRAPHS = {"llama", "gpt2", "gemma2", "bloom", "falcon", "phi"}  # each export takes seconds


@pytest.mark.parametrize("form", sorted({*DECODERS} - {"qwen2"}))  # see below
def test_what_we_export_is_the_same_model(form, tokenizer, tmp_path):
    theirs = model_folders(tmp_path, tokenizer, form)
    for to in ("gguf", "transformers", *(("onnx",) if form in GRAPHS else ())):
        for model in (theirs, tmp_path / "ours"):
            done = prove(model, file_of(theirs, to))
            assert done.is_same, done.as_table()


@pytest.mark.parametrize("name", ["bert Model", "roberta Model", "distilbert Model"])
def test_encoders_are_asked_for_hidden_states(name, tmp_path):
    case, words = ENCODERS[name], like_bert()
    theirs = case.build_one(case.their_classes, {**case.theirs, "vocab_size": len(words) + 2})
    randomise(theirs).eval().save_pretrained(tmp_path / "theirs")
    words.save_pretrained(tmp_path / "theirs")
    for to in ("gguf", "onnx"):
        done = prove(tmp_path / "theirs", file_of(tmp_path / "theirs", to))
        assert done.is_same, done.as_table()


@pytest.mark.parametrize("name", ["marian", "bart"])
def test_encoder_decoders_are_asked_with_both_texts(name, tmp_path):
    case, tokenizer = CASES[name], KNOWN["translation"][0]()
    options = {**case.theirs, "vocab_size": len(tokenizer) + 2, "eos_token_id": 0}
    theirs = case.build_one(case.their_classes, options)
    randomise(theirs).eval().save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    for to in ("ctranslate2", "onnx"):
        done = prove(tmp_path / "theirs", file_of(tmp_path / "theirs", to))
        assert done.is_same, done.as_table()


def test_a_tokenizer_that_is_opened_as_another_is_found(tokenizer, tmp_path):
    """AutoTokenizer opens it as Qwen2Tokenizer in the folder, and llama.cpp as what it is."""
    theirs = model_folders(tmp_path, tokenizer, "qwen2")
    export_checkpoint(tmp_path / "ours", tmp_path / "file", "gguf", verify=False)
    done = prove(theirs, tmp_path / "file/model.gguf")
    assert [one.question for one in wrong(done)] == ["token ids"]


@pytest.mark.parametrize("fault", [None, *FAULTS[:8]], ids=lambda one: one and one.name)
def test_few_bits_are_right_or_wrong(fault, tokenizer, tmp_path):
    """Eight bits and four lose much of a random model, and are still its weights or not."""
    theirs = model_folders(tmp_path, tokenizer, "llama", **WIDE, tie_word_embeddings=False)
    faulty = shutil.copytree(theirs, tmp_path / "faulty")
    if fault is not None:
        fault.plant(faulty)
    packed = file_of(faulty, "gguf", "q8_0")
    for path in (packed, quantised(packed, tmp_path / "Q4_0.gguf", 2)):
        found = prove(theirs, path)
        assert found.is_same is (fault is None), found.as_table()
        assert "packed answers" in [one.question for one in found.answers]


def test_few_bits_of_a_model_in_bfloat16_are_right(tokenizer, tmp_path):
    theirs = model_folders(tmp_path, tokenizer, "llama", **WIDE)
    each(".", lambda x: x.to(torch.bfloat16))(theirs)
    of_config(dtype="bfloat16")(theirs)
    done = prove(theirs, file_of(theirs, "gguf", "q8_0"))
    assert done.is_same, done.as_table()


def quantised(path, target, kind):
    """A file of fewer bits, by llama.cpp's own quantiser."""
    from cyllama.llama import llama_cpp

    params = llama_cpp.LlamaModelQuantizeParams()
    params.ftype, params.allow_requantize = kind, True
    llama_cpp.model_quantize(str(path), str(target), params)
    return target


@pytest.mark.parametrize(
    ("to", "name"),
    [
        *itertools.product(("openvino", "ctranslate2"), (None, "rotation order", "theta")),
        *(("executorch", name) for name in (None, "rotation order")),
    ],
)
def test_other_runtimes_are_asked_as_well(to, name, tokenizer, tmp_path):
    fault = next((one for one in FAULTS if one.name == name), None)
    theirs = model_folders(tmp_path, tokenizer, "llama", **FAULTS[0].fields)
    faulty = shutil.copytree(theirs, tmp_path / "faulty")
    if fault is not None:
        fault.plant(faulty)
    found = wrong(prove(theirs, file_of(faulty, to)))
    assert bool(found) is (fault is not None), found
    assert fault is None or any(re.search(fault.cause, one.cause) for one in found), found


@pytest.mark.parametrize("kind", [None, "int16", "bfloat16", "float16", "int8"])
def test_files_of_ctranslate2s_own_converter_are_right(kind, tokenizer, tmp_path):
    theirs = model_folders(tmp_path, tokenizer, "llama", **FAULTS[0].fields)
    converter = ctranslate2.converters.TransformersConverter(str(theirs))
    converter.convert(str(tmp_path / "made"), quantization=kind)
    done = prove(theirs, tmp_path / "made")
    assert done.is_same, done.as_table()


@pytest.mark.parametrize("fields", [{"bos_token_id": 2, "add_bos_token": True}], ids=str)
def test_fields_that_llama_cpps_converter_adds_are_no_fault(fields, tmp_path):
    case, words = ENCODERS["bert Model"], like_bert()
    theirs = case.build_one(case.their_classes, {**case.theirs, "vocab_size": len(words) + 2})
    randomise(theirs).eval().save_pretrained(tmp_path / "theirs")
    words.save_pretrained(tmp_path / "theirs")
    named = {f"tokenizer__ggml__{name}": value for name, value in fields.items()}
    done = prove(tmp_path / "theirs", changed(file_of(tmp_path / "theirs", "gguf"), **named))
    assert done.is_same, done.as_table()


def test_eight_bits_of_another_runtime_are_near(tokenizer, tmp_path):
    theirs = model_folders(tmp_path, tokenizer, "llama", **WIDE)
    done = prove(theirs, file_of(theirs, "ctranslate2", "int8"))
    assert done.is_same
    assert {one.verdict for one in done.answers} >= {"near", "same"}


def test_the_command_prints_a_table_or_json_and_has_three_ends(tokenizer, tmp_path, capsys):
    theirs = model_folders(tmp_path, tokenizer, "llama", **FAULTS[0].fields)
    path = file_of(theirs, "gguf")
    assert main([str(theirs), str(path)]) == 0
    assert "by llama.cpp: the same model: 7 answers agree" in capsys.readouterr().out
    faulty = shutil.copytree(theirs, tmp_path / "faulty")
    FAULTS[0].plant(faulty)
    assert main([str(faulty), str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["same"] is False
    assert "rotation order" in json.dumps(told["answers"])
    assert main([str(theirs), str(tmp_path / "nothing")]) == 2
    assert "is none of what can be asked" in capsys.readouterr().err


# What the converters of others have written into files, by the thread in which it was found.
OF_OTHERS = {
    "ollama/ollama#17698": ({"tokenizer__ggml__pre": "default"}, "the pre-tokenizer"),
    "ggml-org/llama.cpp#21500": ({"tokenizer__ggml__add_bos_token": False}, "BOS.* is missing"),
}


@pytest.mark.parametrize("thread", OF_OTHERS)
def test_a_fault_of_other_converters_is_found_and_named(thread, tokenizer, tmp_path):
    fields, cause = OF_OTHERS[thread]
    theirs = model_folders(tmp_path, tokenizer, "llama")
    path = file_of(theirs, "gguf")
    assert prove(theirs, path).is_same
    [found] = wrong(prove(theirs, changed(path, **fields)))
    assert found.question == "token ids"
    assert re.search(cause, found.cause)


def test_what_a_file_has_beyond_the_model_is_found(tokenizer, tmp_path):
    """A bias that the model lacks changes its logits; a tied head written twice does not."""
    theirs = model_folders(tmp_path, tokenizer, "llama", tie_word_embeddings=True)
    path = file_of(theirs, "gguf")
    head = GgufFile(path).read("token_embd.weight")
    assert prove(theirs, changed(path, {"output.weight": head})).is_same
    for more in ({"output.weight": head * 1.5}, {"blk.0.attn_q.bias": torch.ones(48)}):
        found = [one.question for one in wrong(prove(theirs, changed(path, more)))]
        assert "logits" in found


def test_tokens_beyond_a_long_window_are_asked(tokenizer, tmp_path):
    theirs = model_folders(tmp_path, tokenizer, "gemma2", sliding_window=600)
    done = prove(theirs, file_of(theirs, "gguf"))
    assert done.is_same, done.as_table()
    assert any("609 tokens" in one.seen for one in done.answers)


def test_what_cannot_be_judged_is_one_sentence(tokenizer, tmp_path):
    theirs = model_folders(tmp_path, tokenizer, "llama")
    path = file_of(theirs, "gguf")
    assert prove(theirs, path.parent).is_same  # the only file of a folder
    with pytest.raises(ConversionError, match="give the folder of the model first"):
        prove(path, theirs)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(ConversionError, match="fetch it again"):
        prove(theirs, path)
    exported = file_of(theirs, "onnx")
    (exported / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(ConversionError, match=r"does not open|cannot be read"):
        prove(theirs, exported)
