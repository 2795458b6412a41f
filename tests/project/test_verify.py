"""`make verify` runs the verbs of a commit, goes on where it stopped, and says what is stale."""

import json
import re
import subprocess
import sys
import warnings

import pytest

from support.paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import verify

sys.path.pop(0)

# Verbs that show nothing of the code, or write figures that have dates of their own.
NOT_RUN = {"help", "verify", "bench", "scanners", "format", "clean"}
MAKEFILE = """
tested:
\tcp report.xml $(patsubst --junitxml=%,%,$(ARGS))
broken:
\tfalse
"""
REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"/>
<testcase name="c"><failure message="x">y</failure></testcase>
<testcase name="d"><skipped message="there is no GPU"/></testcase>
</testsuite></testsuites>
"""


def git(folder, *words):
    named = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True)


def commit(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "more")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small one, whose verbs are `tested` and `broken`."""
    folder = tmp_path / "project"
    (folder / "docs").mkdir(parents=True)
    git(folder, "init", "-q")
    commit(folder, Makefile=MAKEFILE, report_xml=REPORT, other_txt="1")
    monkeypatch.setattr(verify, "ROOT", folder)
    monkeypatch.setattr(verify, "RECORD", folder / "docs" / "verified.json")
    monkeypatch.setattr(verify, "PAGE", folder / "VERIFIED.md")
    covers = {"tested": ("report.xml", "docs"), "broken": ("other.txt",)}
    monkeypatch.setattr(verify, "COVERS", covers)
    return folder


def run(monkeypatch, project, *verbs):
    monkeypatch.setattr(sys, "argv", ["verify.py", str(project.parent / "kept"), *verbs])
    verify.main()
    return (project / "VERIFIED.md").read_text()


def test_each_verb_has_a_row_with_what_it_showed(project, monkeypatch, capsys):
    page = run(monkeypatch, project)
    assert "| `make tested` | 2 passed, **1 failed**, 1 left out |" in page
    assert "- `make tested`, 1: there is no GPU\n" in page
    assert "| `make broken` | **ended with 2** |" in page
    assert "make broken: **ended with 2**" in capsys.readouterr().out
    assert "stale" not in page.partition("|---|")[2]


def test_only_what_is_stale_runs_again(project, monkeypatch, capsys):
    run(monkeypatch, project, "tested")
    first = json.loads(verify.RECORD.read_text())
    commit(project, other_txt="2", **{"docs/EXPORTS_md": "a figure"})
    run(monkeypatch, project)
    after = json.loads(verify.RECORD.read_text())
    assert after["tested"] == first["tested"]
    commit(project, report_xml=REPORT.replace('<failure message="x">y</failure>', ""))
    assert verify.is_stale("tested", after)
    assert not verify.is_stale("broken", after)
    assert "(stale)" in verify.page(after)
    assert "3 passed, 0 failed" in run(monkeypatch, project)
    told = re.findall("^make (.*) [.]{3}$", capsys.readouterr().out, re.M)
    assert told == ["tested", "broken", "tested"]


def test_verbs_may_be_named_with_spaces_or_commas(project, monkeypatch, capsys):
    for words in (["tested", "broken"], ["tested,broken"], ["tested,", "broken"]):
        run(monkeypatch, project, *words)
        told = re.findall("^make (.*) [.]{3}$", capsys.readouterr().out, re.M)
        assert told == ["tested", "broken"]


def test_a_verb_that_does_not_exist_is_one_sentence(project, monkeypatch):
    with pytest.raises(SystemExit, match="no such verb: docks: choose of tested, broken"):
        run(monkeypatch, project, "docks")


def test_every_verb_is_run_and_covers_paths_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(re.findall(r"^([a-z-]+):.*## ", makefile, re.M)) - NOT_RUN == verify.COVERS.keys()
    paths = {path.removeprefix(":(exclude)") for paths in verify.COVERS.values() for path in paths}
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_what_no_runtime_or_engine_calls_is_not_imported_by_their_tests():
    rooms = [room.removeprefix("tests/").removesuffix(".py") for room in verify.NOT_CALLED]
    names = "|".join(re.escape(room.replace("/", ".")) for room in rooms)
    for place in ("runtimes", "engines", "study"):
        for path in (ROOT / "tests" / place).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert not re.findall(rf"(?:from|import) ({names})\b", text), path
            assert "warm_python" not in text, path  # nor as a fixture


def test_the_page_is_written_from_the_record():
    """What is stale is told as a warning: to run it again takes hours."""
    lines = verify.record()
    if verify.PAGE.exists() or lines:
        page = verify.PAGE.read_text(encoding="utf-8").replace(" (stale)", "")
        assert page == verify.page(lines).replace(" (stale)", "")
    known = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, **QUIET)
    if known.stdout == "false\n" and (stale := [v for v in lines if verify.is_stale(v, lines)]):
        warnings.warn(f"VERIFIED.md is stale for {', '.join(stale)}: make verify", stacklevel=1)


QUIET = {"capture_output": True, "text": True, "check": False}
