"""A saved folder runs for someone who never heard of this package: fresh process, offline, nothing
installed."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from families import DECODER, SEQ2SEQ
from parity import randomise
from transformers import AutoConfig

import hf_tformer
from hf_tformer.registration import FAMILIES

CASES = [
    (model_type, auto, name)
    for model_type, (_, models) in FAMILIES.items()
    for auto, name in models.items()
]

# The reader's whole program. It proves that the package cannot be imported before it loads
# anything.
READER = """
import sys, torch, transformers
sys.modules["hf_tformer"] = None
folder, auto, save_to = sys.argv[1:4]
saved = torch.load(sys.argv[4], weights_only=True)
model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).eval()
assert type(model).__module__.startswith("transformers_modules"), type(model)
output = model(**saved["inputs"], return_dict=True)
for name, expected in saved["outputs"].items():
    assert torch.equal(output[name], expected), name
if "tokens" in saved:
    tokens = model.generate(**saved["prompt"], max_new_tokens=6, do_sample=False)
    assert torch.equal(tokens, saved["tokens"]), tokens
model.save_pretrained(save_to)
print("same")
"""


def read_elsewhere(tmp_path, folder, auto, save_to, cwd=None):
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",  # as in the process that wrote: more threads add in another order
    }
    run = subprocess.run(
        [sys.executable, "-c", READER, str(folder), auto, str(save_to), str(tmp_path / "saved.pt")],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd or tmp_path,
    )
    assert run.stdout.strip().endswith("same"), run.stderr[-3000:]


def write(tmp_path, folder, model_type, name):
    """Saves a random model and what it answers."""
    family = DECODER if model_type == "tformer_decoder" else SEQ2SEQ
    model = randomise(getattr(hf_tformer, name)(family.config())).eval()
    model.save_pretrained(folder)
    ids = torch.randint(3, 101, (2, 7))
    inputs = {"input_ids": ids}
    if family is SEQ2SEQ:
        inputs["decoder_input_ids"] = ids[:, :5]
    outputs = {n: v.detach() for n, v in model(**inputs).items() if isinstance(v, torch.Tensor)}
    saved = {"inputs": inputs, "outputs": outputs}
    if model.can_generate():
        prompt = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        saved |= {
            "prompt": prompt,
            "tokens": model.generate(**prompt, max_new_tokens=6, do_sample=False),
        }
    torch.save(saved, tmp_path / "saved.pt")


@pytest.mark.parametrize(("model_type", "auto", "name"), CASES, ids=lambda value: value)
def test_every_head_runs_where_the_package_is_not_installed_and_saves_again(
    tmp_path, model_type, auto, name
):
    first, second = tmp_path / "first", tmp_path / "second"
    write(tmp_path, first, model_type, name)
    read_elsewhere(tmp_path, first, auto, second)
    shutil.rmtree(first)  # the second generation must stand alone
    read_elsewhere(tmp_path, second, auto, tmp_path / "third")


def test_any_auto_class_of_the_map_opens_a_language_model(tmp_path):
    """A folder saved from one head still says how to open all the others."""
    folder = tmp_path / "saved"
    write(tmp_path, folder, "tformer_decoder", "TformerDecoderForCausalLM")
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    assert set(auto_map) == {"AutoConfig", *FAMILIES["tformer_decoder"][1]}
    assert all("--" not in reference for reference in auto_map.values())
    for reference in auto_map.values():
        assert (folder / (reference.split(".")[0] + ".py")).exists()
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    torch.save({"inputs": saved["inputs"], "outputs": {}}, tmp_path / "saved.pt")
    for auto in sorted(set(auto_map) - {"AutoConfig"}):
        read_elsewhere(tmp_path, folder, auto, tmp_path / auto)


def test_where_the_package_is_installed_no_trust_is_needed(family, tmp_path):
    family.build().save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), family.config_class)
