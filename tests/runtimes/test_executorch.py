"""What ExecuTorch runs answers as our model does: every family and head, beside a past that the
program keeps. The export itself compares logits and greedy texts before it keeps anything."""

import subprocess
import sys

import pytest
import torch

import hf_tformer
from conversion import ConversionError, export_checkpoint, open_exported
from support.families import DECODER, ENCODER, SEQ2SEQ, random_rows
from support.leaves import ARCHITECTURES, BERT, GPT2, LEAVES, WINDOWS

pytestmark = pytest.mark.runtime
pytest.importorskip("executorch", reason="executorch is not installed")

OF_KINDS = LEAVES["decoder"]["rotations by kind"]
MODELS = {
    "decoder": (DECODER, None, {}),
    "decoder, learned positions": (DECODER, None, GPT2),
    "decoder, alibi": (DECODER, None, LEAVES["decoder"]["linear bias"]),
    "decoder, windows": (DECODER, None, OF_KINDS),
    "decoder, classes of texts": (
        DECODER,
        hf_tformer.TformerDecoderForSequenceClassification,
        {"num_labels": 5},
    ),
    "seq2seq": (SEQ2SEQ, None, {"value_head_dim": 4}),
    "seq2seq, T5": (SEQ2SEQ, None, ARCHITECTURES["seq2seq"]["T5"]),
    "encoder": (ENCODER, None, WINDOWS),
    "encoder, no head": (ENCODER, ENCODER.base_class, BERT),
    "encoder, classes of texts": (
        ENCODER,
        hf_tformer.TformerEncoderForSequenceClassification,
        {"num_labels": 5},
    ),
    "encoder, answers": (ENCODER, hf_tformer.TformerEncoderForQuestionAnswering, {}),
}


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """The model, its export and the folder of that: lowering takes half a minute."""
    done = {}

    def of(name):
        if name not in done:
            family, model_class, fields = MODELS[name]
            folder = tmp_path_factory.mktemp("exported")
            model = family.build(model_class=model_class, **fields)
            model.save_pretrained(folder / "ours")
            done[name] = (
                model,
                export_checkpoint(folder / "ours", folder / "out", to="executorch"),
            )
        return done[name]

    return of


@pytest.mark.parametrize("name", MODELS)
def test_an_export_is_proven_in_executorch(export, name):
    model, done = export(name)
    assert done.proof.difference <= 1e-4 * max(1, done.proof.largest)
    assert done.proof.equal_texts == ({1: (3, 3)} if model.can_generate() else {})
    assert {path.name for path in done.folder.iterdir()} >= {"model.pte", "config.json"}


def test_an_opened_program_writes_one_text_after_the_other(export):
    model, done = export("decoder")
    opened = open_exported(done.folder)
    for row in random_rows([2, 11, 1, 30]):  # a past that was longer is forgotten
        ids = torch.tensor([row])
        expected = model.generate(ids, max_new_tokens=20)
        assert opened.generate(ids, max_new_tokens=20).tolist() == expected.tolist()


REFUSED = {
    "there are 2 sequences": {"inputs": torch.ones(2, 5, dtype=torch.long)},
    "num_beams=1": {"num_beams": 2},
    "66 tokens, .* room for 64": {"inputs": torch.ones(1, 66, dtype=torch.long)},
    "1 sequences with padding": {"attention_mask": torch.tensor([[0, 1, 1, 1, 1]])},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_an_opened_program_refuses_batches(export, sentence):
    opened = open_exported(export("decoder")[1].folder)
    inputs = {"inputs": torch.ones(1, 5, dtype=torch.long), **REFUSED[sentence]}
    with pytest.raises(ConversionError, match=sentence):
        opened.generate(**inputs, max_new_tokens=2)


def test_batches_may_be_larger_than_a_program_takes_at_once(export):
    model, done = export("encoder")
    ids = torch.tensor(random_rows([13] * 9))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        expected = model(**inputs).logits
    actual = open_exported(done.folder)(**inputs).logits
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


RUNNER = """
import sys

sys.modules["hf_tformer"] = sys.modules["conversion"] = None
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

runner = TextLLMRunner("out/model.pte", "out/tokenizer.json")
habits = GenerationConfig(max_new_tokens=12, temperature=0.0, echo=False)
text = []
for _ in range(2):
    text.clear()
    runner.reset()
    runner.generate("to be", habits, text.append)
open("text", "w").write("".join(text))
"""


def test_its_own_runner_writes_our_text_with_our_tokenizer(trained, tmp_path):
    model, tokenizer = trained
    export_checkpoint(tmp_path / "ours", tmp_path / "out", to="executorch")
    run = subprocess.run(
        [sys.executable, "-c", RUNNER], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    ids = tokenizer("to be", return_tensors="pt").input_ids
    written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12)
    expected = tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)
    assert (tmp_path / "text").read_text(encoding="utf-8") == expected


@pytest.mark.parametrize("name", ["decoder", "seq2seq", "encoder, no head"])
def test_the_lines_of_the_card_run(export, name):
    folder = export(name)[1].folder
    lines = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1]
    run = subprocess.run(
        [sys.executable, "-c", lines.split("```")[0]],
        cwd=folder.parent,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
