"""The book is true: its programs print what it says, in both languages, and its links are there."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from xml.etree import ElementTree

import book_map
import pytest
from book import (
    DOCS,
    FENCE,
    LANGUAGES,
    ROOT,
    SYSTEMS,
    blocks,
    chapters,
    definitions,
    is_same,
    links,
    run,
    steps,
)
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.pages import reading_minutes, without_words

pytestmark = pytest.mark.usefixtures("warm_python")

ENGLISH, CHINESE = (chapters(language) for language in LANGUAGES)
BOTH = [*ENGLISH, *CHINESE]
SLOW = ("14-encoder-decoder", "21-encoder-only", "22-good-practice", "24-fine-tuning", "27-scale")
# What each chapter about one of the systems has, in this order.
PARTS = {
    "en": (
        *("The formula", "The smallest program", "The same numbers from the package"),
        *("The picture", "Where it stands", "What it costs", "The error that tutorials make"),
    ),
    "zh": (
        "公式",
        "最小的程序",
        "用本包得到同样的数",
        "图",
        "代码在哪里",
        "代价",
        "教程中常见的错误",
    ),
}
# Chinese that was written after the English sentence, and what a Chinese reader expects.
TRANSLATED = {"课文": "教程", "小了四倍": "只有应有的四分之一", "之下我们的文件": "本包的代码"}


def name_of(page):
    return f"{page.parent.name}/{page.name}"


def is_system(page):
    number = re.match(r"\d+", page.name)
    return bool(number) and int(number[0]) <= SYSTEMS


def marked(page):
    return pytest.param(page, marks=pytest.mark.slow) if page.stem in SLOW else page


@pytest.mark.parametrize("page", [marked(page) for page in ENGLISH], ids=name_of)
def test_a_chapter_prints_what_it_says_and_draws_its_pictures(page, tmp_path):
    if not steps(page):
        return
    done = book("run", "--here", page, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    drawn = {picture.name for picture in tmp_path.glob("*.svg")}
    shown = {Path(path).name for path, _ in links(page) if path.endswith(".svg")}
    assert drawn <= shown, "a picture that no reader sees"


def test_both_languages_have_the_same_chapters():
    assert [page.name for page in ENGLISH] == [page.name for page in CHINESE]
    numbers = [int(page.name[:2]) for page in ENGLISH if page.name[0].isdigit()]
    assert numbers == [*range(len(numbers))]
    assert len(numbers) > SYSTEMS


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_both_languages_show_the_same_programs(page):
    english = DOCS / "en" / page.name
    ours, theirs = (
        [(b.kind, without_words(b.text.replace("docs/zh/", "docs/en/"))) for b in blocks(each)]
        for each in (page, english)
    )
    assert ours == theirs


@pytest.mark.parametrize("page", [page for page in BOTH if is_system(page)], ids=name_of)
def test_a_chapter_has_all_its_parts(page):
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^## (.+)$", text, re.M)
    assert (
        tuple(part for part in found if part in PARTS[page.parent.name])
        == (PARTS[page.parent.name])
    )
    programs = [step for step in steps(page) if step.printed is not None]
    assert len(programs) >= 2, "numbers that are printed are numbers that are tested"
    assert re.search(r"!\[.{20,}?\]\(\.\./pictures/\d", text), "a picture, told in words"


MAPPED = [page for page in BOTH if page.name[0].isdigit() and int(page.name[:2]) in book_map.LIT]


@pytest.mark.parametrize("page", MAPPED, ids=name_of)
def test_a_chapter_opens_with_the_whole_model_in_which_its_part_is_lit(page):
    chapter, language = int(page.name[:2]), page.parent.name
    before = page.read_text(encoding="utf-8").split("\n## ")[0]
    assert before.rstrip().endswith(book_map.link(chapter, language))
    picture = book_map.PICTURES / book_map.name_of(chapter, language)
    shown = picture.read_text(encoding="utf-8")
    assert shown == book_map.drawn(chapter, language), "`python tools/book.py pictures` writes it"
    lit = {
        group.get("data-part"): "".join(group.itertext())
        for group in ElementTree.fromstring(shown).iter("{http://www.w3.org/2000/svg}g")
        if "lit" in group.get("class").split()
    }
    assert set(lit) == set(book_map.LIT[chapter]), "parts that the picture has"
    assert all(lit.values()), "a name in each part"


def test_the_whole_model_is_shown_in_the_first_chapters_and_nowhere_else():
    assert [int(page.name[:2]) for page in MAPPED] == [*book_map.LIT] * len(LANGUAGES)
    maps = {path.name for path in book_map.PICTURES.glob("model-*.svg")}
    assert maps == {book_map.name_of(n, each) for n in book_map.LIT for each in LANGUAGES}


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_chinese_pages_are_written_in_chinese_and_not_after_the_english_ones(page):
    text = page.read_text(encoding="utf-8")
    assert not {said: better for said, better in TRANSLATED.items() if said in text}


@pytest.mark.parametrize("page", BOTH, ids=name_of)
def test_a_link_leads_to_a_file_and_to_what_is_defined_in_it(page):
    headings = {}
    for path, name in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} is not there"
        assert target.is_relative_to(ROOT)
        if target.suffix == ".py" and name:
            assert name in definitions(target), f"{path} does not define {name}"
        elif name:
            headings = {slug(h) for h in re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.M)}
            assert name in headings, f"{path} has no heading {name}"


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", BOTH, ids=name_of)
def test_the_smallest_program_is_small(page):
    if is_system(page):
        first = steps(page)[0].code
        assert len([line for line in first.splitlines() if line.strip()]) <= 25
        assert "hf_tformer" not in first


LAST_PRACTISED = 28  # what follows is one program, written by the reader
# The headings of exercises and of their solutions, and the three parts of a question.
PRACTICE = {
    "en": ("Exercises", "Solutions", r"\*\*Predict\*\*.+\*\*Run\*\*.+\*\*Explain\*\*.+"),
    "zh": ("练习", "解答", r"\*\*预测\*\*.+\*\*运行\*\*.+\*\*解释\*\*.+"),
}
PRACTISED = [p for p in BOTH if p.name[0].isdigit() and int(p.name[:2]) <= LAST_PRACTISED]


@pytest.mark.parametrize("page", PRACTISED, ids=name_of)
def test_a_chapter_has_three_exercises_whose_solutions_print_what_is_tested(page):
    exercises, solutions, question = PRACTICE[page.parent.name]
    asked, solved = (
        page.read_text(encoding="utf-8").split(f"\n## {exercises}\n")[1].split(f"### {solutions}\n")
    )
    assert [bool(re.fullmatch(question, each)) for each in numbered(asked)] == [True] * 3
    assert len(numbered(solved)) == 3
    last = steps(page)[-1]
    assert last.code in solved, "the program of the solutions is the last of the page"
    said = re.findall(r"^(\d):", last.printed, re.M)
    assert list(dict.fromkeys(said)) == ["1", "2", "3"], "each solution prints"
    lines = [line for line in last.code.splitlines() if line.strip()]
    assert len(lines) <= 3 * 12


def numbered(text):
    """Return the items of the one numbered list in a part of a page, which count from 1."""
    found = re.findall(r"^(\d)\. (.+)$", FENCE.sub("", text), re.M)
    assert [int(number) for number, _ in found] == [*range(1, len(found) + 1)]
    return [item for _, item in found]


LONGEST = 12  # minutes


@pytest.mark.parametrize("page", [page for page in BOTH if page.name[0].isdigit()], ids=name_of)
def test_a_chapter_is_read_in_twelve_minutes(page):
    """What is longer is evidence, which belongs into guarantees, or another chapter."""
    assert reading_minutes(page.read_text(encoding="utf-8")) <= LONGEST


def test_minutes_are_those_of_a_reader():
    assert reading_minutes("word " * 400) == 2
    assert reading_minutes("字" * 300 + "\n\n```python\n" + "x = 1\n" * 15 + "```\n") == 2
    assert reading_minutes("$$\nx\n$$\n" * 3 + "[" + "word " * 200 + "](a/long/way.md)") == 2
    assert reading_minutes("word " * 200 + "\n## Exercises\n" + "word " * 200) == 1


# Running it


def book(*words, **options):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "book.py", *words],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def test_a_reader_who_runs_a_chapter_sees_what_it_prints_and_keeps_its_picture(tmp_path):
    page = ROOT / "docs" / "en" / "02-dot-product.md"
    done = book("run", page, "--output", "drawn", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *printed, kept = done.stdout.splitlines()
    assert is_same("".join(step.printed or "" for step in steps(page)), "\n".join(printed))
    assert kept == f"picture: {tmp_path / 'drawn' / '02-dot-product.svg'}"
    assert [path.name for path in tmp_path.iterdir()] == ["drawn"], "nothing else is left"
    assert (tmp_path / "drawn" / "02-dot-product.svg").read_text(encoding="utf-8").strip()


def test_a_page_that_is_not_there_is_named(tmp_path):
    done = book("run", "docs/en/02.md", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("there is no page docs/en/02.md: ")


def test_a_file_that_is_to_hold_pictures_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "drawn").write_text("mine")
    done = book("run", ROOT / "docs" / "en" / "02-dot-product.md", "-o", "drawn", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "--output drawn is a file: name a folder for the pictures\n"


def test_what_is_not_installed_is_named_with_the_command_that_installs_it(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nimport nowhere\n```\n")
    done = book("run", page, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "page.md needs nowhere: run `pip install '.[book]'`\n"


def imported(nodes):
    """Return the modules that some statements import, by their whole names."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def behind(name):
    """Return what a module of ours and its packages import when they are imported."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        place = ROOT.joinpath(*parts[:length])
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.exists():
                yield from imported(ast.parse(path.read_text(encoding="utf-8")).body)


def test_the_extra_book_holds_what_chapters_import():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra, always = (
        {canonicalize_name(Requirement(each).name) for each in named}
        for named in (project["optional-dependencies"]["book"], project["dependencies"])
    )
    ours = {path.stem for path in ROOT.glob("examples/**/*.py")} | {"hf_tformer", "conversion"}
    programs = [ast.walk(ast.parse(step.code)) for page in BOTH for step in steps(page)]
    named = {name for nodes in programs for name in imported(nodes)}
    named |= {other for name in named for other in behind(name)}
    found = {name.split(".")[0] for name in named} - ours - sys.stdlib_module_names
    owners = packages_distributions()
    needed = {canonicalize_name(owners[name][0]) for name in found}
    assert needed <= always | extra
    assert extra <= needed, "what no chapter imports"


# The test of the test


def test_another_number_or_another_word_is_a_fault(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    for printed, faults in (("loss 0.5", 0), ("loss 0.5004", 0), ("loss 0.51", 1), ("los 0.5", 1)):
        page.write_text(f"```python\nprint('loss', 0.5)\n```\n\n```text\n{printed}\n```\n")
        assert len(run(page)) == faults, printed
    assert is_same("a 1e-7", "a 3e-7")
    assert not is_same("a 1 2", "a 1")
