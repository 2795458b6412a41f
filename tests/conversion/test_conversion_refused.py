"""Models that ours cannot express are refused by name, with the reason and what to take instead."""

import json

import pytest
import transformers
from transformers import CONFIG_MAPPING

from conversion import ConversionError, export_checkpoint, import_checkpoint, verify
from conversion.command import main
from conversion.engine.listing import MAPPINGS, types_of, unknown_types
from conversion.engine.refused import REFUSALS, REFUSED
from conversion.engine.registry import FORMATS
from support.converting import assert_refused
from support.paths import PINNED

NAMED = [(name, refusal) for refusal in REFUSALS for name in refusal.model_types]


def save(folder, model_type):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


@pytest.mark.parametrize(("name", "refusal"), NAMED, ids=lambda value: str(value)[:20])
def test_a_folder_of_theirs_is_refused_with_the_reason(name, refusal, tmp_path):
    save(tmp_path / "theirs", name)
    assert_refused(tmp_path, f"model_type is {name!r}", refusal.why, *refusal.instead)


def test_the_names_are_those_of_transformers_and_none_converts():
    assert len(NAMED) == len(REFUSED)  # each for one reason
    assert not REFUSED.keys() - CONFIG_MAPPING.keys()
    assert not REFUSED.keys() & FORMATS.keys()
    instead = {form for refusal in REFUSALS for form in refusal.instead}
    assert all(FORMATS[form].config_to_theirs for form in instead)


@pytest.mark.parametrize("mapping", MAPPINGS.values())
def test_every_type_of_transformers_is_read_or_refused_with_a_reason(mapping):
    """A newer transformers has others, which are answered with the nearest formats."""
    if transformers.__version__ == PINNED:
        assert unknown_types(types_of(mapping)) == set()
    assert len(types_of(mapping)) > 30


def test_the_command_says_it_in_one_line(tmp_path, capsys):
    folder = save(tmp_path / "theirs", "phimoe")
    assert main(["import", str(folder), str(tmp_path / "ours")]) == 1
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "experts" in told
    assert "mixtral" in told


def test_whoever_names_it_as_a_format_or_compares_with_it_is_told_too(tmp_path):
    folder = save(tmp_path / "theirs", "gpt_oss")
    for ask in (
        lambda: import_checkpoint(folder, tmp_path / "ours", format="gpt_oss"),
        lambda: export_checkpoint(folder, tmp_path / "ours", to="gpt_oss"),
        lambda: verify(folder, folder),
    ):
        with pytest.raises(ConversionError, match=r"gpt_oss.*sinks"):
            ask()


def test_what_nobody_knows_is_answered_with_what_converts(tmp_path):
    save(tmp_path / "theirs", "perhaps_tomorrow")
    assert_refused(tmp_path, "model_type is 'perhaps_tomorrow'", "`tformer convert formats`")
