"""Code and checkpoints of different ages: later code reads earlier ones, not vice versa."""

import json
from pathlib import Path

import pytest
import torch
from families import FAMILIES
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from hf_tformer.model.configuration_base import FORMAT_VERSION

FOLDERS = sorted(path for path in (Path(__file__).parent / "checkpoints").glob("format-*/*"))
AUTO = {"decoder": AutoModelForCausalLM, "seq2seq": AutoModelForSeq2SeqLM}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_checkpoint_of_every_earlier_format_gives_the_logits_it_gave_then(folder):
    expected = load_file(folder / "expected.safetensors")
    model, report = AUTO[folder.name].from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    logits = model.eval()(**{name: expected[name] for name in expected if name != "logits"}).logits
    torch.testing.assert_close(logits, expected["logits"], rtol=1e-4, atol=1e-5)


def test_there_is_a_checkpoint_of_every_format():
    kept = {(path.parent.name, path.name) for path in FOLDERS}
    wanted = {(f"format-{n + 1}", f.name) for n in range(FORMAT_VERSION) for f in FAMILIES}
    assert kept == wanted


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
