"""The pages are true: every block runs, every path exists, both languages show the same code."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from families import DECODER
from test_training import tokenizer

pytestmark = pytest.mark.usefixtures("warm_python")

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "README.zh-CN.md")
FENCE = re.compile(r"^(?:### (?P<title>.+?)\n|```(?P<kind>\w*)\n(?P<code>.*?)^```)", re.M | re.S)


def blocks(page, kind):
    """The code blocks of one kind, each under the heading it stands below."""
    found, title = [], page
    for match in FENCE.finditer((ROOT / page).read_text(encoding="utf-8")):
        title = match["title"] or title
        if match["code"] is not None and match["kind"] == kind:
            found.append((title, match["code"]))
    return found


@pytest.mark.parametrize(("title", "code"), blocks("README.md", "python"), ids=lambda v: v[:40])
def test_a_block_runs_as_a_program_of_its_own(title, code, tmp_path):
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.strip(), "a reader sees nothing happen"


def test_the_commands_on_a_folder_run(tmp_path):
    """The blocks name the folder that the first program of the page saves."""
    DECODER.build().save_pretrained(tmp_path / "my-model")
    tokenizer().save_pretrained(tmp_path / "my-model")
    commands = [
        shlex.split(line, comments=True)
        for _, code in blocks("README.md", "bash")
        for line in code.splitlines()
        if line.startswith("tformer ")
    ]
    mine = [words for _, *words in commands if words[0] != "convert"]  # test_conversion_plain.py
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


def test_there_are_blocks_to_run():
    assert len(blocks("README.md", "python")) >= 5


def test_both_languages_show_the_same_code():
    for kind in ("python", "bash", ""):
        english, chinese = ([code for _, code in blocks(page, kind)] for page in PAGES)
        assert [without_words(code) for code in english] == [
            without_words(code) for code in chinese
        ]


def without_words(code):
    """Comments and the right-hand side of the folder map are translated; the rest is not."""
    lines = [re.split(r"#|(?<=\S)\s{2,}", line)[0].strip() for line in code.splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_are_targets_of_the_makefile(page):
    commands = [
        line.split("#")[0].split() for _, code in blocks(page, "bash") for line in code.splitlines()
    ]
    targets = [words[1] for words in commands if words[:1] == ["make"]]
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        run = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md", "SECURITY.md", "FORMATS.md"])
def test_every_path_that_a_page_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests|tools|hf_tformer|examples)/[\w./]+)`", text))
    named |= set(re.findall(r"\]\(([\w./-]+)\)", text))
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_folder_map_names_every_module():
    mapped = "".join(code for _, code in blocks("README.md", ""))
    modules = [*ROOT.glob("hf_tformer/**/*.py"), *ROOT.glob("examples/*.py")]
    assert not [path.name for path in modules if path.name not in mapped]


def test_every_test_file_that_keeps_a_promise_is_in_the_table():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [
        p.name for p in (ROOT / "tests").glob("test_*.py") if f"`tests/{p.name}`" not in text
    ]


TOY = "--number_of_dates 256 --hidden_size 16 --intermediate_size 16 --num_train_epochs 1 --use_cpu"


def test_the_demo_runs_to_its_end(tmp_path):
    """At toy size, so that what it answers is wrong; `make demo` is right, see test_examples.py."""
    demo = ROOT / "examples" / "demo.py"
    output = tmp_path / "out"
    run = subprocess.run(
        [sys.executable, str(demo), "--output", str(output), *TOY.split()],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "of 1000 dates that it had never seen are exactly right" in run.stdout
    assert {"dates", "loss.png", "attention.png"} == {path.name for path in output.iterdir()}
    assert {"model.safetensors", "tokenizer.json"} <= {p.name for p in (output / "dates").iterdir()}
