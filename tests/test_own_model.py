"""The page OWN_MODEL.md leads from an attention function to a model that others open."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hf_tformer import check
from hf_tformer.__main__ import main

ROOT = Path(__file__).parent.parent
PAGES = ("OWN_MODEL.md", "OWN_MODEL.zh-CN.md")


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.M | re.S)


def replace_part(path, begin, end, text):
    """From one line up to another, both given by how they begin."""
    old = path.read_text()
    part = re.search(rf"^{re.escape(begin)}.*?(?=^{re.escape(end)})", old, re.M | re.S)
    path.write_text(old[: part.start()] + text + old[part.end() :])


@pytest.fixture
def quiet(tmp_path, monkeypatch):
    """What a reader of the page has, before the model is trained."""
    monkeypatch.chdir(tmp_path)
    begin = blocks("OWN_MODEL.md", "bash")[0].splitlines()[0].split("#")[0].split()
    assert begin[:3] == ["python", "-m", "hf_tformer"]
    assert main(begin[3:]) == 0
    attention, supports, _ = blocks("OWN_MODEL.md", "python")
    folder = tmp_path / "quiet"
    modeling, configuration = folder / "modeling_quiet.py", folder / "configuration_quiet.py"
    replace_part(modeling, "class QuietAttention", "class QuietLayer", f"{attention}\n\n")
    replace_part(modeling, "    def _init_weights", "\n\nclass QuietModel", supports)
    imported = modeling.read_text().replace("import SelfAttention", "import SelfAttention, rotate")
    modeling.write_text(imported)
    replace_part(configuration, "    first_temperature", "    def __post_init__", "")
    replace_part(configuration, "    def validate_architecture", "\n\nQuietConfig.register", "")
    test = folder / "test_quiet.py"
    replace_part(test, "    fields =", "    waived =", "")
    test.write_text(test.read_text().split("\n\n@torch.no_grad()")[0])
    return folder


def run(folder, *words):
    process = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=900
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    return process.stdout


def test_the_model_of_the_page_is_trained_checked_and_opened_elsewhere(quiet):
    program = blocks("OWN_MODEL.md", "python")[2]
    run(quiet.parent, "-c", program.replace("max_steps=50", "max_steps=3"))
    assert not [finding for finding in check("trained") if finding.verdict == "fail"]


@pytest.mark.slow
def test_the_promises_hold_for_the_model_of_the_page(quiet):
    assert " failed" not in run(quiet.parent, "-m", "pytest", "-q", "quiet")


def test_both_languages_of_the_page_show_the_same_code():
    kinds = ("bash", "python")
    english, chinese = ([c for kind in kinds for c in blocks(page, kind)] for page in PAGES)
    assert english[1:] == chinese[1:]  # the first has a remark in words
