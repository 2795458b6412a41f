"""The list of formats finds what people look for and says what is true, and so does its page."""

import json
import os
import re
import subprocess
import sys

import pytest
import transformers

from conversion.command import main
from conversion.engine.facts import (
    GROUPS,
    OTHER,
    complaint,
    facts,
    group_of,
    matching,
    only_with,
    usual_config,
)
from conversion.engine.listing import as_page
from conversion.engine.plain import PlainFormat
from conversion.engine.registry import FORMATS
from support import parity_encoder, plain
from support.converting import CASES
from support.drawn_programs import DRAWN
from support.paths import PINNED, ROOT

PAGE = ROOT / "docs" / "FORMATS.md"
OF_TRANSFORMERS = [name for name, form in FORMATS.items() if not isinstance(form, PlainFormat)]


def listed(capsys, *words):
    """The names of the formats that the command prints in full."""
    assert main(["formats", *words]) == 0
    return re.findall(r"^(\S+) \(", capsys.readouterr().out, re.M)


def test_every_format_has_one_line_in_its_group(capsys):
    assert main(["formats"]) == 0
    groups = re.split(r"^(\S.*) \(\d+\)$", capsys.readouterr().out, flags=re.M)[1:]
    found = dict(zip(groups[::2], groups[1::2], strict=True))
    assert tuple(found) == GROUPS
    for name, form in FORMATS.items():
        (line,) = re.findall(rf"^  {re.escape(name)} .*$", found[group_of(form)], re.M)
        way = "both ways" if form.config_to_theirs else "import"
        assert line.split(maxsplit=1)[1].split("  ")[0] == way
        assert line.endswith(form.released)


def test_every_format_names_the_models_that_people_look_for():
    assert [name for name, form in FORMATS.items() if not form.released] == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_found_by_its_name_its_models_and_its_classes(name):
    form = FORMATS[name]
    classes = (*getattr(form, "classes", ()), *getattr(form, "heads", ()))
    models = re.findall(r"[\w.-]+", form.released)
    for word in (name, name.upper(), name.replace("_", "-"), *models, *classes):
        assert form in matching([word]), word
    assert form in matching([*models, name])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["gpt", "neo"], {"gpt_neo"}),
        (["GPTNeo"], {"gpt_neo"}),
        (["Llama-3.1"], {"llama", "meta-llama"}),
        (["seed oss"], {"seed_oss"}),
    ],
)
def test_a_name_is_found_however_it_is_written(words, names, capsys):
    assert set(listed(capsys, *words)) >= names


def test_what_is_not_there_is_one_sentence_with_a_word_that_is(capsys):
    assert main(["formats", "marain"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith(
        "no format has 'marain' in its name, models or classes - did you mean marian?\n"
    )
    assert main(["formats", "gpt2", "marian"]) == 1
    assert "no format has 'gpt2' and 'marian'" in capsys.readouterr().err


def test_a_format_is_described_in_full(capsys):
    assert main(["formats", "ElectraForMaskedLM"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "electra (encoders, both ways)" in said
    assert "leaves out the guess which tokens were replaced in pretraining" in said
    assert "only with embedding_size=hidden_size, is_decoder=False" in said
    assert main(["formats", "llms-from-scratch-gemma3"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "asks --set sliding_window=512 assumes rope_base=1000000.0" in said


def test_a_program_reads_the_same(capsys):
    assert main(["formats", "--json"]) == 0
    known = {form["name"]: form for form in json.loads(capsys.readouterr().out)}
    assert list(known) == list(FORMATS)
    assert known["opt"]["only_with"]["word_embed_proj_dim"] == "hidden_size"
    assert known["nanogpt"]["asks"] == {"n_head": 12}
    assert {name for name, form in known.items() if form["export"]} == {
        name for name, form in FORMATS.items() if form.config_to_theirs
    }


def test_a_reader_may_leave_before_the_end(warm_python):
    """As `head` does."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "conversion", "formats"]
    run = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_what_converts_with_one_value_alone_is_refused_with_another(name):
    form = FORMATS[name]
    usual = usual_config(form)
    assert complaint(form, usual) is None
    for field in (field for field in only_with(form) if ": " not in field):
        config = usual_config(form)
        vars(config)[field] = OTHER
        assert complaint(form, config).name == field


def test_fields_that_convert_with_one_value_alone_are_found():
    assert only_with(FORMATS["stablelm"]) == {"qk_layernorm": "False"}
    assert only_with(FORMATS["llama"]) == only_with(FORMATS["nanogpt"]) == {}
    mpnet = only_with(FORMATS["mpnet"])
    assert mpnet["pad_token_id"] == "1"
    assert mpnet["MPNetForQuestionAnswering: num_labels"] == "2"


@pytest.mark.skipif(transformers.__version__ != PINNED, reason="written with another transformers")
def test_the_page_says_what_the_registry_knows():
    assert PAGE.read_text(encoding="utf-8") == as_page(list(FORMATS.values())) + "\n", (
        "out of date: run python -m conversion formats --markdown > docs/FORMATS.md"
    )


def test_the_tests_that_the_page_names_have_a_case_of_every_format():
    cases = {case.their_classes[0].model_type for case in CASES.values()}
    heads = {case.their_classes[1].__name__ for case in parity_encoder.CASES.values()}
    programs = {*(case.form for case in plain.CASES.values()), *DRAWN}
    for name, form in FORMATS.items():
        known = facts(form)
        if known["group"] == "encoders":
            # What is left of a model in pretraining is another head, which has a case.
            assert {x for x in form.heads if not x.endswith("ForPreTraining")} <= heads, name
        else:
            assert name in (programs if known["group"] == GROUPS[-1] else cases), name
