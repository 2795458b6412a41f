"""Chapter 23 of the book leads from an attention function to a model that others open.

The program of the chapter runs in test_book.py; what it says of files and commands is done here.
"""

import ast
import re
import subprocess
import sys

import pytest
from book import DOCS, blocks

from hf_tformer import check
from hf_tformer.__main__ import main

pytestmark = pytest.mark.usefixtures("warm_python")

PAGE = DOCS / "en" / "23-your-own-model.md"


def code(kind):
    return [block.text for block in blocks(PAGE) if block.kind == kind]


def definition(name):
    """A function or class of the chapter's program."""
    program = "".join(code("python"))
    nodes = [node for node in ast.parse(program).body if getattr(node, "name", None) == name]
    return ast.get_source_segment(program, nodes[0])


def replace_part(path, begin, end, text):
    """From one line up to another, both given by how they begin."""
    old = path.read_text()
    part = re.search(rf"^{re.escape(begin)}.*?(?=^{re.escape(end)})", old, re.M | re.S)
    path.write_text(old[: part.start()] + text + old[part.end() :])


@pytest.fixture
def quiet(tmp_path, monkeypatch):
    """What a reader of the chapter has, before the model is trained."""
    monkeypatch.chdir(tmp_path)
    begin = code("bash")[0].splitlines()[0].split("#")[0].split()
    assert begin[:3] == ["python", "-m", "hf_tformer"]
    assert main(begin[3:]) == 0
    supports, program = code("py")
    attention = "\n\n\n".join(definition(name) for name in ("quiet_attention", "QuietAttention"))
    folder = tmp_path / "quiet"
    modeling, configuration = folder / "modeling_quiet.py", folder / "configuration_quiet.py"
    replace_part(modeling, "class QuietAttention", "class QuietLayer", f"{attention}\n\n\n")
    replace_part(modeling, "    def _init_weights", "\n\nclass QuietModel", supports)
    imported = modeling.read_text().replace("import SelfAttention", "import SelfAttention, rotate")
    modeling.write_text(imported)
    replace_part(configuration, "    first_temperature", "    def __post_init__", "")
    replace_part(configuration, "    def validate_architecture", "\n\nQuietConfig.register", "")
    test = folder / "test_quiet.py"
    replace_part(test, "    fields =", "    waived =", "")
    test.write_text(test.read_text().split("\n\n@torch.no_grad()")[0])
    (tmp_path / "train.py").write_text(program.replace("max_steps=50", "max_steps=3"))
    return folder


def run(folder, *words):
    process = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=900
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    return process.stdout


def test_the_model_of_the_chapter_is_trained_checked_and_opened_elsewhere(quiet):
    run(quiet.parent, "train.py")
    assert not [finding for finding in check("trained") if finding.verdict == "fail"]


@pytest.mark.slow
def test_the_promises_hold_for_the_model_of_the_chapter(quiet):
    assert " failed" not in run(quiet.parent, "-m", "pytest", "-q", "quiet")
