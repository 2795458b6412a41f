"""What ONNX Runtime and OpenVINO open answers as our model does: every family, every head, the
fields of other architectures. The export itself compares logits and texts before it keeps anything.
"""

import json
import subprocess
import sys

import pytest
import torch

import hf_tformer
from conversion import export_checkpoint, open_exported
from support.families import DECODER, ENCODER, MIXTURE, SEQ2SEQ, random_rows
from support.leaves import ARCHITECTURES, BERT, GPT2, backend_of

pytestmark = pytest.mark.runtime

MODELS = {
    "decoder": (DECODER, None, {}),
    "decoder, untied, values of another size": (
        DECODER,
        None,
        {"tie_word_embeddings": False, "value_head_dim": 4, "qk_norm": True},
    ),
    "decoder, learned positions": (DECODER, None, GPT2),
    "decoder, no head": (DECODER, hf_tformer.TformerDecoderModel, {}),
    "decoder, classes of texts": (
        DECODER,
        hf_tformer.TformerDecoderForSequenceClassification,
        {"num_labels": 5},
    ),
    "decoder, classes of tokens": (DECODER, hf_tformer.TformerDecoderForTokenClassification, {}),
    "seq2seq": (SEQ2SEQ, None, {}),
    "seq2seq, two vocabularies": (
        SEQ2SEQ,
        None,
        {"source_vocab_size": 89, "share_encoder_decoder_embeddings": False},
    ),
    "encoder": (ENCODER, None, {}),
    "mixture": (MIXTURE, None, {}),
    "encoder, no head": (ENCODER, ENCODER.base_class, BERT),
    "encoder, classes of texts": (
        ENCODER,
        hf_tformer.TformerEncoderForSequenceClassification,
        {"num_labels": 5},
    ),
    "encoder, classes of tokens": (ENCODER, hf_tformer.TformerEncoderForTokenClassification, BERT),
    "encoder, answers": (ENCODER, hf_tformer.TformerEncoderForQuestionAnswering, {}),
    **{
        f"{family.name}, {name}": (family, None, fields)
        for family in (DECODER, SEQ2SEQ, ENCODER, MIXTURE)
        for name, fields in ARCHITECTURES[family.name].items()
    },
}


@pytest.fixture(params=["onnx", "openvino"])
def runtime(request):
    needed = {"onnx": "onnxruntime", "openvino": "openvino"}[request.param]
    pytest.importorskip(needed, reason=f"{needed} is not installed")
    return request.param


def save(model_name, folder):
    family, model_class, fields = MODELS[model_name]
    model = family.build(backend_of(fields), model_class, **fields)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_an_export_is_proven_in_its_runtime(runtime, tmp_path, name):
    model = save(name, tmp_path / "ours")
    done = export_checkpoint(tmp_path / "ours", tmp_path / "out", to=runtime)
    assert done.proof.difference <= 1e-4 * max(1, done.proof.largest)
    if model.can_generate():
        assert done.proof.equal_texts == {1: (3, 3), 4: (3, 3)}
    else:
        assert done.proof.equal_texts == {}
    assert not list((tmp_path / "out").glob("*.py")), "nothing there runs our code"


def test_an_opened_export_generates_in_batches_as_the_model_does(runtime, tmp_path):
    model = save("decoder", tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "out", to=runtime)
    opened = open_exported(tmp_path / "out")
    rows = random_rows([5, 2, 7])
    ids = torch.tensor([[0] * (7 - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (7 - len(row)) + [1] * len(row) for row in rows])
    options = {"max_new_tokens": 9, "num_beams": 3, "num_return_sequences": 2}
    for how in ({}, options, {"repetition_penalty": 1.7, "max_new_tokens": 9}):
        expected = model.generate(ids, attention_mask=mask, do_sample=False, **how)
        actual = opened.generate(ids, attention_mask=mask, do_sample=False, **how)
        assert actual.tolist() == expected.tolist()


def test_an_opened_encoder_answers_when_it_is_called(runtime, tmp_path):
    model = save("encoder", tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "out", to=runtime)
    ids = torch.tensor(random_rows([13]))
    with torch.no_grad():
        expected = model(ids).logits
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    actual = open_exported(tmp_path / "out")(**inputs).logits
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


# The lines of the card, in a process that does not have this package.
GENAI = """
import json, sys

sys.modules["hf_tformer"] = sys.modules["conversion"] = None
{program}
"""


LINES = {
    "openvino": """
import openvino_genai

pipeline = openvino_genai.LLMPipeline("out", "CPU", INFERENCE_PRECISION_HINT="f32")
print(json.dumps(pipeline.generate("to be", max_new_tokens=12, do_sample=False)))
""",
    "onnx": """
import onnxruntime_genai

model = onnxruntime_genai.Model("out")
tokenizer = onnxruntime_genai.Tokenizer(model)
options = onnxruntime_genai.GeneratorParams(model)
ids = tokenizer.encode("to be")
options.set_search_options(max_length=len(ids) + 12)
generator = onnxruntime_genai.Generator(model, options)
generator.append_tokens(ids)
while not generator.is_done():
    generator.generate_next_token()
print(json.dumps(tokenizer.decode(generator.get_sequence(0)[len(ids):])))
""",
}


def test_genai_writes_our_text_with_our_tokenizer(runtime, trained, tmp_path):
    pytest.importorskip(f"{'onnxruntime' if runtime == 'onnx' else runtime}_genai")
    model, tokenizer = trained
    export_checkpoint(tmp_path / "ours", tmp_path / "out", to=runtime)
    run = subprocess.run(
        [sys.executable, "-c", GENAI.format(program=LINES[runtime])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    ids = tokenizer("to be", return_tensors="pt").input_ids
    written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12)
    expected = tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)
    assert json.loads(run.stdout.splitlines()[-1]) == expected
