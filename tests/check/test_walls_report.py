"""What `tformer check` reports about code that wants to be reported otherwise, and that neither the
folder nor what its links lead to is touched or shown to it."""

import json
import shutil
import sys

import pytest

from hf_tformer.checking import behind_walls, check, fresh_process
from hf_tformer.checking.behind_walls import HANGS, INTERFERED, Outcome
from hf_tformer.checking.fresh_process import copy_folder, judge, run_probe
from hf_tformer.path_safety import LONGEST, printable
from support.broken_models import FILE, prepend, write_foreign

PLAN = ["plan", ["a", "b"]]
WHOLE = [["a", "running", ""], ["a", "ok", "1"], ["b", "running", ""], ["b", "fail", "2"]]


def test_a_whole_report_is_taken_as_it_is():
    assert judge(Outcome([PLAN, *WHOLE])) == [("a", "ok", "1"), ("b", "fail", "2")]


def changed(index, *lines):
    return [*WHOLE[:index], *lines, *WHOLE[index + 1 :]]


REPORTS = {
    "nothing": [],
    "no list": WHOLE,
    "an empty list": [["plan", []]],
    "only the list": [PLAN],
    "a check left out": [PLAN, *WHOLE[:2]],
    "a verdict left out": [PLAN, *WHOLE[:3]],
    "a check more": [PLAN, *WHOLE, ["c", "running", ""], ["c", "ok", ""]],
    "a check twice": [PLAN, *WHOLE, *WHOLE[2:]],
    "a verdict twice": [PLAN, *changed(1, WHOLE[1], WHOLE[1])],
    "another order": [PLAN, *WHOLE[2:], *WHOLE[:2]],
    "a list twice": [PLAN, PLAN, *WHOLE],
    "an unknown verdict": [PLAN, *changed(1, ["a", "fine", ""])],
    "a detail that is no text": [PLAN, *changed(1, ["a", "ok", {"b": 1}])],
    "a line that is no list": [PLAN, *changed(1, 7)],
    "a verdict without its start": [PLAN, *WHOLE[1:]],
}


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_that_is_not_whole_fails(report):
    findings = judge(Outcome(REPORTS[report]))
    assert findings[-1][1:] == ("fail", INTERFERED)


@pytest.mark.parametrize("lines", range(5))
def test_a_process_that_dies_or_hangs_fails_at_its_check(lines):
    name = {0: "fresh process", 1: "a", 3: "b"}.get(lines, "fresh process")
    said = [PLAN, *WHOLE[:lines]]
    died = judge(Outcome(said, "SIGSEGV", "its last words"))[-1]
    assert died == (name, "fail", "the process died (SIGSEGV): its last words")
    hung = judge(Outcome(said, HANGS))[-1]
    assert hung[:2] == (name, "fail")
    assert "no answer within the time allowed" in hung[2]


def test_what_is_printed_cannot_drive_a_terminal():
    assert printable("\x1b[2J\r\n\u202eok\u00e9") == "\\x1b[2J\\r\\n\\u202eok\u00e9"
    assert len(printable("x" * 10**6)) < LONGEST + 10
    findings = judge(Outcome([["plan", ["\x1b"]], ["\x1b", "running", ""], ["\x1b", "ok", "\x9b"]]))
    assert findings == [("\\x1b", "ok", "\\x9b")]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "folder"
    (path / "custom_generate").mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "custom_generate" / "generate.py").write_text("code")
    return path


def test_the_copy_has_every_file_and_hides_nothing_behind_a_link(folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret.safetensors").symlink_to(tmp_path / "secret")
    (folder / "notes.txt").symlink_to(tmp_path / "secret")
    (folder / "model.safetensors").symlink_to(tmp_path / "secret.safetensors")
    (folder / "more").symlink_to(tmp_path)
    (folder / "again.json").symlink_to("config.json")
    (folder / ".git").mkdir()
    copy = tmp_path / "copy"
    linked, left_out = copy_folder(folder, copy, True)
    assert sorted(left_out) == ["model.safetensors", "more", "notes.txt"]
    assert (linked, (copy / "again.json").read_text()) == ([], "{}")
    assert {str(path.relative_to(copy)) for path in copy.rglob("*")} == {
        "config.json",
        "again.json",
        "custom_generate",
        "custom_generate/generate.py",
    }


def test_the_copy_of_a_snapshot_of_the_hub_has_what_its_links_lead_to(tmp_path):
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "1234").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/1234")
    assert copy_folder(snapshot, tmp_path / "copy", True) == ([], [])
    assert (tmp_path / "copy" / "config.json").read_text() == "{}"


def test_large_weights_are_linked_or_copied(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(fresh_process, "LARGE", 100)
    (tmp_path / "elsewhere.safetensors").write_bytes(b"x" * 100)
    (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    linked, left_out = copy_folder(folder, tmp_path / "copy", True)
    assert (linked, left_out) == ([(tmp_path / "elsewhere.safetensors").resolve()], [])
    assert copy_folder(folder, tmp_path / "whole", False) == ([], [])
    assert not (tmp_path / "whole" / "model.safetensors").is_symlink()


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    return write_foreign(tmp_path_factory.mktemp("foreign") / "sound")


FORGER = """
import json, os
for number in range(64):
    for name in ("loads: AutoConfig", "loads: AutoModel", "loading report", "parameters"):
        try:
            os.write(number, (json.dumps([name, "ok", ""]) + "\\n").encode())
        except OSError:
            pass
os._exit(0)
"""
# Each tries to change the model, and fails where it stands.
VANDAL = """
import os
for name in ("config.json", "model.safetensors", FILE):
    for folder in (os.path.dirname(CONFIG), ORIGINAL):
        for mode in ("a", "w"):
            try:
                open(os.path.join(folder, name), mode).close()
            except OSError:
                continue
            raise SystemExit("it was changed")
raise RuntimeError("\\x1b[2Jstopped" + "!" * 10**6)
"""


@pytest.mark.usefixtures("warm_python")
def test_code_that_writes_its_own_verdicts_is_found_out(foreign, tmp_path):
    copied = shutil.copytree(foreign, tmp_path / "copied")
    prepend(copied / FILE, FORGER)
    findings = {
        f.name: f for f in check(copied, run_anyway=True) if f.name.startswith(("loads", "fresh"))
    }
    assert (findings["loads: AutoConfig"].verdict, len(findings)) == ("fail", 1)
    assert findings["loads: AutoConfig"].detail == INTERFERED


@pytest.mark.usefixtures("warm_python")
@pytest.mark.skipif(sys.platform != "linux", reason="there are walls on Linux alone")
@pytest.mark.parametrize("large", [True, False], ids=["linked", "copied"])
def test_the_folder_cannot_be_changed_while_it_is_checked(large, foreign, tmp_path, monkeypatch):
    if large:
        monkeypatch.setattr(fresh_process, "LARGE", 1000)
    original = shutil.copytree(foreign, tmp_path / "copied")
    copy = "os.path.join(os.environ['TMPDIR'], '../../copy/copied/config.json')"
    vandal = VANDAL.replace("ORIGINAL", repr(str(original))).replace("FILE", repr(FILE))
    prepend(original / FILE, vandal.replace("CONFIG", copy))
    before = {path: path.read_bytes() for path in original.iterdir()}
    findings = {name: (verdict, detail) for name, verdict, detail in run_probe(original)}
    if findings["walls"][0] != "ok":
        pytest.skip(findings["walls"][1])
    verdict, detail = findings["loads: AutoConfig"]
    assert (verdict, detail[:40]) == ("fail", "RuntimeError: \\x1b[2Jstopped!!!!!!!!!!!!!!!"[:40])
    assert len(detail) < LONGEST + 20
    assert "folder" not in findings
    assert before == {path: path.read_bytes() for path in original.iterdir()}


@pytest.mark.usefixtures("warm_python")
def test_a_folder_that_takes_too_much_memory_is_told_so(foreign, tmp_path):
    copied = shutil.copytree(foreign, tmp_path / "copied")
    prepend(copied / FILE, "import torch\nhog = torch.zeros(1 << 40)\n")
    findings = {name: (verdict, detail) for name, verdict, detail in run_probe(copied)}
    assert findings["loads: AutoConfig"][0] == "fail"
    assert "more memory than it is allowed" in findings["loads: AutoConfig"][1]


@pytest.mark.usefixtures("warm_python")
def test_a_folder_that_changes_while_it_is_checked_is_told_so(foreign, tmp_path, monkeypatch):
    copied = shutil.copytree(foreign, tmp_path / "copied")

    def change(*args, **kwargs):
        (copied / "config.json").write_text(json.dumps({"changed": True}))
        return Outcome(walls=dict.fromkeys(behind_walls.ALL, ""))

    monkeypatch.setattr(fresh_process, "run_behind_walls", change)
    assert ("folder", "fail") in [finding[:2] for finding in run_probe(copied)]


def test_code_that_runs_without_walls_gets_no_link_and_the_report_says_so(
    foreign, tmp_path, monkeypatch
):
    """As on macOS: the launcher is told that it is there."""
    launcher = tmp_path / "walls.py"
    launcher.write_text(
        "import runpy, sys\nsys.platform = 'darwin'\n"
        f"runpy.run_path({str(behind_walls.LAUNCHER)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(behind_walls, "LAUNCHER", launcher)
    monkeypatch.setattr(fresh_process, "LARGE", 1000)  # and nothing may be linked there
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "def main(say, copy, work):\n"
        "    say(['plan', ['weights']])\n"
        "    say(['weights', 'running', ''])\n"
        "    link = os.path.islink(os.path.join(copy, 'model.safetensors'))\n"
        "    say(['weights', 'ok', 'a link' if link else 'a copy'])\n"
    )
    monkeypatch.setattr(fresh_process, "PROBE", program)
    walls, weights = run_probe(foreign, without_walls=True)
    assert walls[:2] == ("walls", "warn")
    assert "there are none on darwin" in walls[2]
    assert "only code that you trust" in walls[2]
    assert weights == ("weights", "ok", "a copy")
