"""Code and checkpoints of different ages: later code reads earlier ones, not vice versa."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from hf_tformer.model.configuration_base import FORMAT_VERSION
from support.families import FAMILIES, WRITERS
from support.paths import TESTS
from support.refreshing import OUTLIVED

pytestmark = pytest.mark.usefixtures("warm_python")

FOLDERS = sorted(path for path in (TESTS / "checkpoints").glob("format-*/*"))
WITH_CODE = [path for path in FOLDERS if any(path.glob("*.py"))]
WITHOUT_CODE = [path for path in FOLDERS if path not in WITH_CODE]
AUTO = {family.name: family.auto for family in FAMILIES}

# A stranger's whole program. What it expects of a folder lies beside the weights.
STRANGER = """
import json, sys
sys.modules["hf_tformer"] = None
import torch, transformers
from safetensors.torch import load_file
for folder, auto in json.loads(sys.argv[1]):
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules"), type(model)
    inputs = load_file(f"{folder}/expected.safetensors")
    logits, written = inputs.pop("logits"), inputs.pop("written", None)
    torch.testing.assert_close(model(**inputs).logits, logits, rtol=1e-4, atol=1e-5)
    if written is not None:
        found = model.generate(input_ids=inputs["input_ids"], max_new_tokens=6, do_sample=False)
        assert torch.equal(found, written), (folder, found)
    print("same", folder)
"""

# As if a release had renamed what it never promised, for the code of the folder alone: transformers
# and torch need their private names themselves.
WITHOUT_PRIVATE_NAMES = """
import builtins, sys
real_import = builtins.__import__

def refuse(name, globals=None, locals=None, fromlist=(), level=0):
    asking = (globals or {}).get("__name__", "")
    libraries = ("torch", "transformers")
    if asking.startswith("transformers_modules") and name.split(".")[0] in libraries:
        for word in (*name.split("."), *(fromlist or ())):
            if word.startswith("_"):
                raise ImportError(f"cannot import name {word!r} from {name!r}")
    return real_import(name, globals, locals, fromlist, level)

builtins.__import__ = refuse
"""


def open_as_a_stranger(folders, tmp_path, before=""):
    """In a fresh process that cannot import the package and has no network."""
    cases = [(str(folder), AUTO[folder.name.split("-")[0]].__name__) for folder in folders]
    run = subprocess.run(
        [sys.executable, "-c", before + STRANGER, json.dumps(cases)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
    )
    assert run.stdout.count("same") == len(cases), run.stderr[-3000:]


@pytest.mark.parametrize("folder", WITHOUT_CODE, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_checkpoint_of_every_earlier_format_gives_the_logits_it_gave_then(folder):
    expected = load_file(folder / "expected.safetensors")
    model, report = AUTO[folder.name].from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    logits = model.eval()(**{name: expected[name] for name in expected if name != "logits"}).logits
    torch.testing.assert_close(logits, expected["logits"], rtol=1e-4, atol=1e-5)


@OUTLIVED
def test_folders_that_strangers_hold_open_on_this_transformers_and_torch(tmp_path):
    """With the code that they were saved with, whatever this package has become since."""
    open_as_a_stranger(WITH_CODE, tmp_path)


def test_what_is_saved_today_opens_where_private_names_have_changed(tmp_path):
    folders = []
    for family in FAMILIES:
        folders.append(folder := tmp_path / family.name)
        model = family.build()
        model.save_pretrained(folder)
        ids = torch.arange(3, 15).reshape(2, 6)
        inputs = {"input_ids": ids, **family.target(ids.clone())}
        answers = {"logits": model(**inputs).logits.detach()}
        if family in WRITERS:
            answers["written"] = model.generate(ids, max_new_tokens=6, do_sample=False)
        save_file({**inputs, **answers}, folder / "expected.safetensors")
    open_as_a_stranger(folders, tmp_path, before=WITHOUT_PRIVATE_NAMES)


def test_there_is_a_checkpoint_of_every_format_with_and_without_code():
    wanted = {(f"format-{n + 1}", f.name) for n in range(FORMAT_VERSION) for f in FAMILIES}
    for kept in (WITHOUT_CODE, WITH_CODE):
        assert {(path.parent.name, path.name.split("-")[0]) for path in kept} == wanted


def test_a_checkpoint_of_a_later_format_is_refused_with_what_to_do(family, tmp_path):
    """Where the package is installed its class wins over the code in the folder: so it says so."""
    family.build().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    assert config["format_version"] == FORMAT_VERSION
    # A later format may also give a known field a type that it does not have today.
    path.write_text(
        json.dumps({**config, "format_version": FORMAT_VERSION + 1, "hidden_act": ["a"]})
    )
    for load in (AutoConfig.from_pretrained, family.model_class.from_pretrained):
        with pytest.raises(
            ValueError, match=rf"format_version is {FORMAT_VERSION + 1}.*upgrade with"
        ):
            load(tmp_path)


def test_a_checkpoint_without_a_format_is_of_the_first_one(family, tmp_path):
    family.build().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["format_version"]
    path.write_text(json.dumps(config))
    assert AutoConfig.from_pretrained(tmp_path).format_version == FORMAT_VERSION
