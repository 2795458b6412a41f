"""The pages are true: every block runs, every path exists, both languages show the same code.

README here; the chapters of the book run in test_book.py.
"""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from book import DOCS, ROOT, blocks, chapters

from support.families import DECODER
from support.pages import PAGES, README, commands, without_words
from support.training import tokenizer

pytestmark = pytest.mark.usefixtures("warm_python")

PROGRAMS = [block.text for block in blocks(README) if block.kind == "python"]
WRITTEN = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
TRANSLATED = [*chapters("en"), *chapters("zh")]


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_block_runs_as_a_program_of_its_own(number, tmp_path):
    (tmp_path / "block.py").write_text(PROGRAMS[number], encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.strip(), "a reader sees nothing happen"


def test_the_commands_on_a_folder_run(tmp_path):
    """Of the pages, those that name the folder which a program of theirs saves."""
    DECODER.build().save_pretrained(tmp_path / "my-model")
    tokenizer().save_pretrained(tmp_path / "my-model")
    mine = [words for _, *words in commands("tformer") if "my-model" in words]
    # Conversions run in test_conversion_plain.py and tests/runtimes.
    mine = [words for words in mine if words[0] != "convert"]
    assert {words[0] for words in mine} == {"check", "publish", "refresh", "view"}
    for words in mine:
        run = subprocess.run(
            [sys.executable, "-m", "hf_tformer", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, run.stdout + run.stderr[-3000:]


def test_both_languages_show_the_same_code():
    english, chinese = (
        [(block.kind, without_words(block.text)) for block in blocks(ROOT / page)] for page in PAGES
    )
    assert english == chinese


@pytest.mark.parametrize("page", PAGES)
def test_the_readme_is_short(page):
    """What is longer belongs into a chapter."""
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= 100


def test_the_commands_of_the_pages_are_targets_of_the_makefile():
    targets = {words[1] for words in commands("make")}
    assert {"demo", "test"} <= targets
    for target in sorted(targets):
        run = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("page", [*WRITTEN, *TRANSLATED], ids=name_of)
def test_every_path_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|tools|hf_tformer|examples)/[\w./]+)`", text)
    places = {ROOT / path for path in named}
    if page in WRITTEN:  # the links of the book are tried in test_book.py
        places |= {page.parent / path for path in re.findall(r"\]\(([\w./-]+)\)", text)}
    assert not [place for place in places if not place.exists()]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_folder_map_names_every_module(language):
    mapped = "".join(block.text for block in blocks(DOCS / language / "where-things-are.md"))
    modules = [*ROOT.glob("hf_tformer/**/*.py"), *ROOT.glob("examples/*.py")]
    counts = Counter(path.name for path in modules if path.name != "__init__.py")
    names = Counter(re.findall(r"\w+\.py", mapped))
    assert not counts - names, counts - names


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_test_file_that_keeps_a_promise_is_in_the_table(language):
    """The table names each test file or its room."""
    table = (DOCS / language / "guarantees.md").read_text(encoding="utf-8")
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert not [
        path
        for path in files
        if not any(f"`{place.as_posix()}`" in table for place in (path, path.parent))
    ]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_table_says_which_files_only_the_slow_verb_runs(language, marks_of_tests):
    quick = {test.split("::")[0] for test, marks in marks_of_tests.items() if "slow" not in marks}
    slow = {test.split("::")[0] for test in marks_of_tests} - quick
    rows = (DOCS / language / "guarantees.md").read_text(encoding="utf-8").splitlines()
    rows = [row for row in rows if row.startswith("|")]
    told = [row for row in rows if any(f"`{file}`" in row for file in slow)]
    assert not [row for row in told if "`make test-slow`" not in row]


TOY = (
    "--number_of_dates 256 --hidden_size 16 --intermediate_size 16 --num_train_epochs 1 --use_cpu "
    "--eval_steps 2"
)


def test_the_demo_runs_to_its_end(tmp_path):
    """At toy size, so that what it answers is wrong; `make demo` is right, see test_examples.py."""
    demo = ROOT / "examples" / "demo.py"
    output = tmp_path / "out"
    run = subprocess.run(
        [sys.executable, str(demo), "--output", str(output), *TOY.split()],
        env={k: v for k, v in os.environ.items() if k != "HF_HUB_DISABLE_PROGRESS_BARS"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    line = r"^step +2 of 2, +\d+ s, loss \d\.\d{4}: .+ → .* \(wrong: \d{4}-\d\d-\d\d\)$"
    assert re.search(line, run.stdout, re.M)
    assert "it/s" not in run.stdout + run.stderr  # one line for each evaluation, and no bars
    assert not run.stdout.startswith("\n")
    assert "of 1000 dates that it had never seen are exactly right" in run.stdout
    assert {"dates", "loss.png", "attention.png"} == {path.name for path in output.iterdir()}
    assert {"model.safetensors", "tokenizer.json"} <= {p.name for p in (output / "dates").iterdir()}
