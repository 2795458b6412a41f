"""transformers' pipelines serve an encoder, with the package and with the code in the folder, and
nothing warns."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import pipeline

import hf_tformer
from support.families import ENCODER
from support.listening import listening
from support.word_tokenizer import TEXT, tokenizer_of_words

pytestmark = pytest.mark.usefixtures("warm_python")

# task → the head that serves it
TASKS = {
    "fill-mask": "ForMaskedLM",
    "text-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "feature-extraction": "Model",
}
IDS = torch.tensor([[2, 8, 4, 10, 3]])

# The reader's whole program: what is said goes to stderr.
READER = """
import json, logging, sys
sys.modules["hf_tformer"] = None
from transformers import pipeline
folders, text = json.loads(sys.argv[1])
for task, folder in folders.items():
    serve = pipeline(task, model=folder, trust_remote_code=True)
    assert type(serve.model).__module__.startswith("transformers_modules"), type(serve.model)
    print(json.dumps(serve(text), default=float))
"""


def write_folder(folder, head):
    model = ENCODER.build(model_class=getattr(hf_tformer, f"TformerEncoder{head}"), num_labels=3)
    model.save_pretrained(folder)
    tokenizer_of_words().save_pretrained(folder)
    return model


@pytest.mark.parametrize("task", TASKS)
@torch.no_grad()
def test_a_pipeline_gives_what_the_model_gives_and_says_nothing(task, tmp_path):
    model = write_folder(tmp_path, TASKS[task])
    with listening() as said:
        serve = pipeline(task, model=str(tmp_path))
        found, _ = serve([TEXT, "[MASK]"], batch_size=2)
    assert not said
    output = model(IDS)
    if task == "feature-extraction":
        actual, expected = torch.tensor(found), output.last_hidden_state
    elif task == "token-classification":
        actual, expected = (
            torch.tensor([word["score"] for word in found]),
            # those of the first and the last token, which are no words, are left out
            output.logits.softmax(-1).amax(-1)[0, 1:-1],
        )
    elif task == "fill-mask":
        scores, ids = output.logits[0, 2].softmax(-1).topk(5)
        actual, expected = torch.tensor([word["score"] for word in found]), scores
        assert [word["token"] for word in found] == ids.tolist()
    else:
        actual, expected = torch.tensor(found["score"]), output.logits.softmax(-1).max()
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_pipelines_run_the_code_in_the_folder_where_the_package_is_not_installed(tmp_path):
    folders = {task: str(tmp_path / task) for task in TASKS}
    for task, folder in folders.items():
        write_folder(folder, TASKS[task])
    run = subprocess.run(
        [sys.executable, "-c", READER, json.dumps([folders, TEXT])],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert len(run.stdout.splitlines()) == len(TASKS), run.stderr[-3000:]
    said = [line for line in run.stderr.splitlines() if line.startswith("[transformers]")]
    assert not said
    for line, (task, folder) in zip(run.stdout.splitlines(), folders.items(), strict=True):
        expected = json.dumps(pipeline(task, model=folder)(TEXT), default=float)
        actual = torch.tensor(numbers(json.loads(line)))
        torch.testing.assert_close(actual, torch.tensor(numbers(json.loads(expected))))


def numbers(value):
    """All numbers of an answer, in order."""
    if isinstance(value, (list, dict)):
        parts = value.values() if isinstance(value, dict) else value
        return [number for part in parts for number in numbers(part)]
    return [value] if isinstance(value, (int, float)) else []
