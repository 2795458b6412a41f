"""The tables of docs/SCANNERS.md are about today's corpus, and say the same in both languages."""

import json
import re
from collections import Counter

import pytest

from hf_tformer.checking.findings import dangers
from hf_tformer.checking.folder import Folder
from hf_tformer.checking.reading import static_findings
from support.broken_models import write_foreign
from support.corpus import forms_of

from .forms import FILES, HONEST_CODE, Form, honest_forms, hostile_forms, write_folder
from .page import CHINESE, PAGES, counted, part_of, table
from .tools import SCANNERS, answer_of, levels_by_folder

HOSTILE_FILES = [form for form in hostile_forms() if form.danger in FILES.values()]
HONEST_FILES = [form for form in honest_forms() if form.danger != HONEST_CODE]


def name_of(form):
    return form.name


def rows(language):
    """Return the rows of both tables, as lists of cells, less their headings."""
    lines = [line for line in part_of(PAGES[language]).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[1].isdigit()]


def test_the_tables_are_about_the_whole_corpus_of_today():
    """`make scanners` writes them anew."""
    wanted = []
    for forms in (hostile_forms(), honest_forms()):
        sizes = Counter(form.danger for form in forms)
        wanted += [*sizes.items(), ("all", sum(sizes.values()))]
    assert [(row[0], int(row[1])) for row in rows("en")] == wanted, "run `make scanners`"


def test_both_languages_have_the_same_figures():
    english, chinese = rows("en"), rows("zh")
    assert [[CHINESE[row[0]], *row[1:]] for row in english] == chinese
    versions = [re.findall(r"\d[\w.-]*\w", part_of(page).split("|")[0]) for page in PAGES.values()]
    assert versions[0] == versions[1]


def test_check_holds_back_every_hostile_form_and_no_honest_one():
    """What test_reading_corpus.py and others ask of `check`, as the page says it."""
    hostile, honest = (row for row in rows("en") if row[0] == "all")
    (pickles,) = (row for row in rows("en") if row[0] == FILES["pickle"])
    assert hostile[2] == f"{hostile[1]} / {int(hostile[1]) - int(pickles[1])}"
    assert honest[2].endswith(" / 0")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write_foreign(tmp_path_factory.mktemp("sound") / "sound")


@pytest.mark.parametrize("form", HOSTILE_FILES, ids=name_of)
def test_a_file_that_must_not_be_there_is_named(form, sound, tmp_path):
    findings = list(static_findings(Folder(write_folder(sound, tmp_path / "folder", form))))
    if form.danger == FILES["field"]:
        assert dangers(findings)
    else:
        (warning,) = [found for found in findings if found.name == "weights"]
        assert warning.verdict == "warn"
        assert next(iter(form.files)) in warning.detail


@pytest.mark.parametrize("form", HONEST_FILES, ids=name_of)
def test_a_file_that_honest_folders_have_holds_nothing_back(form, sound, tmp_path):
    folder = Folder(write_folder(sound, tmp_path / "folder", form))
    assert not dangers(static_findings(folder))


def test_the_files_of_the_corpus_say_why():
    forms = forms_of("hostile_files")
    assert all(set(form) == {"name", "kind", "why", "files"} for form in forms)
    assert all(form["why"].endswith(".") and form["kind"] in FILES for form in forms)
    names = [form["name"] for form in [*forms, *forms_of("honest_files")]]
    assert len(set(names)) == len(names)


# How the tables are made


def test_a_folder_counts_once_at_any_level_and_once_at_a_high_one(tmp_path):
    corpus = {name: Form("unpickles", name) for name in ("a", "b", "c")}
    for name in corpus:
        (tmp_path / name).mkdir()
    reports = [(f"{tmp_path}/a/x.py", "low"), (f"{tmp_path}/a/y.py (pos 3)", "high")]
    reports += [(tmp_path / "b", "low"), (tmp_path / "b", "low")]
    scanner = SCANNERS[0]._replace(ask=lambda *_: reports, high=("high",))
    levels = levels_by_folder(scanner, None, tmp_path, None)
    assert levels == {"a": {"low", "high"}, "b": {"low"}, "c": set()}
    counts = {"it": counted(corpus, levels, scanner.high)}
    lines = table("danger", corpus, counts, str).splitlines()
    assert lines[2:] == ["| unpickles | 3 | 2 / 1 |", "| all | 3 | 2 / 1 |"]


def test_what_a_scanner_prints_before_its_answer_is_passed_over():
    assert answer_of("echo", "a warning\n" + json.dumps({"results": []})) == {"results": []}
