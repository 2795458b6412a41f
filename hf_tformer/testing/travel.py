"""Open saved models in a fresh process, offline, where this package cannot be imported."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from transformers import PreTrainedModel

from .families import Family

Case = tuple[Path, str, Path, Path]  # folder, Auto class, file of outputs, where to save again

# The program of that process. It blocks the import of the package before it loads anything; then it
# opens each folder, compares its outputs, and saves it again.
READER = """
import json, sys, torch, transformers
sys.modules["hf_tformer"] = None
for folder, auto, answers, save_to in json.loads(sys.argv[1]):
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules"), type(model)
    saved = torch.load(answers, weights_only=True)
    name = type(model).__name__
    assert saved.get("class", name) == name, f"auto_map opens {name}, not the class that was saved"
    output = model(**saved["inputs"], return_dict=True)
    for name, expected in saved["outputs"].items():
        torch.testing.assert_close(output[name], expected, rtol=1e-5, atol=1e-6)
    if "tokens" in saved:
        tokens = model.generate(**saved["prompt"], max_new_tokens=6, do_sample=False)
        assert torch.equal(tokens, saved["tokens"]), (auto, tokens)
    model.save_pretrained(save_to)
print("same")
"""


def start_reader(
    tmp_path: Path, *cases: Case, cwd: Path | None = None, **environment: str
) -> subprocess.Popen[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",  # as in the process that wrote: more threads add in another order
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, "-c", READER, json.dumps(cases, default=str)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=cwd or tmp_path,
    )


def expect_same(reader: subprocess.Popen[str]) -> None:
    output, errors = reader.communicate(timeout=300)
    assert output.strip().endswith("same"), errors[-3000:]


def expect_same_elsewhere(
    tmp_path: Path, *cases: Case, cwd: Path | None = None, **environment: str
) -> None:
    expect_same(start_reader(tmp_path, *cases, cwd=cwd, **environment))


def write(folder: Path, family: Family, model: PreTrainedModel) -> Path:
    """Save a model and its outputs; return the file of outputs, which is beside the folder."""
    model.save_pretrained(folder)
    ids = torch.randint(3, 101, (2, 7))
    inputs = {"input_ids": ids}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        inputs |= family.target(ids[:, :5])
    outputs = {n: v.detach() for n, v in model(**inputs).items() if isinstance(v, torch.Tensor)}
    saved = {"class": type(model).__name__, "inputs": inputs, "outputs": outputs}
    if model.can_generate():
        prompt = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        saved |= {
            "prompt": prompt,
            "tokens": model.generate(**prompt, max_new_tokens=6, do_sample=False),
        }
    answers = folder.with_name(f"{folder.name} answers.pt")
    torch.save(saved, answers)
    return answers
