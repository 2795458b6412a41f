"""Folders with the code of an earlier day, and what a stranger finds in them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hf_tformer.fast.caches import CACHE
from support.paths import TESTS

CHECKPOINTS = TESTS / "checkpoints" / "format-1"
AUTO = {"decoder": "AutoModelForCausalLM", "seq2seq": "AutoModelForSeq2SeqLM"}

# Such a folder of a decoder can only be renewed beside the transformers that it knows.
OUTLIVED = pytest.mark.skipif(
    CACHE == "cache", reason="code from before transformers 5.24 does not know its name of a cache"
)

# A stranger's whole program. What it expects of a folder lies beside the weights.
STRANGER = """
import json, sys
sys.modules["hf_tformer"] = None
import torch, transformers
from safetensors.torch import load_file
for folder, auto in json.loads(sys.argv[1]):
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).eval()
    inputs = load_file(f"{folder}/expected.safetensors")
    logits, written = inputs.pop("logits"), inputs.pop("written")
    torch.testing.assert_close(model(**inputs).logits, logits, rtol=1e-4, atol=1e-5)
    found = model.generate(input_ids=inputs["input_ids"], max_new_tokens=6, do_sample=False)
    assert torch.equal(found, written), (folder, found)
print("same")
"""


def old_folder(family, tmp_path):
    return Path(shutil.copytree(CHECKPOINTS / f"{family}-with-code", tmp_path / family))


def content(folder):
    """Every file of a folder, by its path in there."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def expect_same_answers(folders, family, tmp_path):
    """For someone without the package: as on the day that they were written."""
    run = subprocess.run(
        [sys.executable, "-c", STRANGER, json.dumps([(str(f), AUTO[family]) for f in folders])],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
    )
    assert run.stdout == "same\n", run.stderr[-3000:]
