"""What `tformer check` reports about code that wants to be reported otherwise, and that neither the
folder nor what its links lead to is touched or shown to it."""

import json
import shutil
import sys

import pytest

from hf_tformer.checking import behind_walls, check, fresh_process
from hf_tformer.checking.behind_walls import HANGS, INTERFERED, Outcome
from hf_tformer.checking.findings import Finding, summary
from hf_tformer.checking.folder import Folder
from hf_tformer.checking.fresh_process import copy_folder, judge, run_probe
from hf_tformer.checking.probe_plan import planned
from hf_tformer.path_safety import LONGEST, printable
from support.broken_models import CONFIG, FILE, prepend, write_foreign

AUTO_MAP = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
NAMES = [
    *("tokenizer loads", "loads: AutoConfig", "loads: AutoModel", "loading report", "parameters"),
    *("buffers", "ties", "forward", "padded rows", "causality", "cache", "generation"),
    *("masked rows", "options", "training", "second save"),
]
PLAN = ["plan", NAMES]
STANDING = dict.fromkeys(behind_walls.ALL, "")


def said(name, verdict="ok", detail=""):
    return [[name, "running", ""], [name, verdict, detail]]


WHOLE = [
    *said(NAMES[0], "skip", "there is none"),
    *(line for name in NAMES[1:-1] for line in said(name)),
    *said(NAMES[-1], "fail", "a fault"),
]


@pytest.fixture
def judged(tmp_path):
    """Judges a report about a folder with this config.json, and with these other files."""

    def judge_report(lines, reason=None, last="", files=(), auto_map=AUTO_MAP, **config):
        (tmp_path / "config.json").write_text(json.dumps({"auto_map": auto_map, **config}))
        for name in files:
            (tmp_path / name).write_text("{}")
        return judge(Outcome(lines, reason, last, STANDING), Folder(tmp_path))

    return judge_report


def test_a_whole_report_says_what_each_verdict_rests_on(judged):
    findings = judged([PLAN, *WHOLE])
    assert [finding.name for finding in findings] == NAMES
    assert findings[0] == Finding("tokenizer loads", "skip", "there is none", "read")
    assert findings[-1] == Finding("second save", "fail", "a fault", "ran behind walls")
    assert {finding.rests_on for finding in findings[1:]} == {"ran behind walls"}


def test_what_ran_without_walls_says_so(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": AUTO_MAP}))
    outcome = Outcome([PLAN, *WHOLE], walls={**STANDING, "files": "there are none"})
    assert judge(outcome, Folder(tmp_path))[1].rests_on == "ran without walls"


def test_the_report_of_a_folder_without_code_may_name_the_classes_of_transformers(judged):
    known = ["AutoConfig", "AutoModelForCausalLM", "AutoModel"]
    names = [NAMES[0], *(f"loads: {auto}" for auto in known), *NAMES[3:]]
    lines = [*WHOLE[:2], *(line for name in names[1:] for line in said(name))]
    assert judged([["plan", names], *lines], auto_map=None)[-1].verdict == "ok"
    names[1] = "loads: AutoTokenizer"
    assert judged([["plan", names], *lines], auto_map=None)[-1].detail == INTERFERED


def changed(index, *lines):
    return [*WHOLE[:index], *lines, *WHOLE[index + 1 :]]


REPORTS = {
    "nothing": [],
    "no list": WHOLE,
    "an empty list": [["plan", []]],
    "a list that is none": [["plan", {"a": 1}], *WHOLE],
    "a list of other checks": [["plan", ["a", "b"]], *said("a"), *said("b")],
    "a list without a check": [["plan", NAMES[:-1]], *WHOLE[:-2]],
    "a list in another order": [["plan", NAMES[::-1]], *WHOLE],
    "a list with a class more": [["plan", [*NAMES[:2], "loads: AutoX", *NAMES[2:]]], *WHOLE],
    "only the list": [PLAN],
    "a check left out": [PLAN, *WHOLE[:-2]],
    "a verdict left out": [PLAN, *WHOLE[:-1]],
    "a check more": [PLAN, *WHOLE, *said("c")],
    "a check twice": [PLAN, *WHOLE, *WHOLE[-2:]],
    "a verdict twice": [PLAN, *changed(1, WHOLE[1], WHOLE[1])],
    "another order": [PLAN, *WHOLE[2:], *WHOLE[:2]],
    "a list twice": [PLAN, PLAN, *WHOLE],
    "an unknown verdict": [PLAN, *changed(3, [NAMES[1], "fine", ""])],
    "a detail that is no text": [PLAN, *changed(3, [NAMES[1], "ok", {"b": 1}])],
    "a line that is no list": [PLAN, *changed(3, 7)],
    "a verdict without its start": [PLAN, *WHOLE[1:]],
    "a tokenizer that does not exist": [PLAN, *said(NAMES[0]), *WHOLE[2:]],
}


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_that_cannot_be_true_fails(report, judged):
    last = judged(REPORTS[report])[-1]
    assert (last.verdict, last.detail) == ("fail", INTERFERED)


def test_a_tokenizer_that_exists_cannot_be_skipped(judged):
    assert judged([PLAN, *WHOLE], files=["tokenizer_config.json"])[-1].detail == INTERFERED
    whole = [PLAN, *said(NAMES[0]), *WHOLE[2:]]
    assert judged(whole, files=["tokenizer_config.json"])[-1].detail == "a fault"


def test_what_does_not_apply_to_quantised_weights_cannot_be_answered(judged):
    quantised = {"quantization_config": {"quant_method": "x"}}
    assert judged([PLAN, *WHOLE], **quantised)[-1].detail == INTERFERED
    kept = ("loads: AutoConfig", "loads: AutoModel", "loading report")
    lines = [line for name in NAMES for line in said(name, "ok" if name in kept else "skip")]
    assert judged([PLAN, *lines], **quantised)[-1].verdict == "skip"


@pytest.mark.parametrize("lines", range(5))
def test_a_process_that_dies_or_hangs_fails_at_its_check(lines, judged):
    name = {1: NAMES[0], 3: NAMES[1]}.get(lines, "fresh process")
    begun = [PLAN, *WHOLE[:lines]]
    died = judged(begun, "SIGSEGV", "its last words")[-1]
    assert (died.name, died.verdict) == (name, "fail")
    assert died.detail == "the process died (SIGSEGV): its last words"
    hung = judged(begun, HANGS)[-1]
    assert (hung.name, hung.verdict) == (name, "fail")
    assert "no answer within the time allowed" in hung.detail


def test_what_is_printed_cannot_drive_a_terminal(judged):
    assert printable("\x1b[2J\r\n\u202eok\u00e9") == "\\x1b[2J\\r\\n\\u202eok\u00e9"
    assert len(printable("x" * 10**6)) < LONGEST + 10
    auto_map = {"AutoConfig": "code.Config", "\x1b": "code.Model"}
    names = [NAMES[0], "loads: AutoConfig", "loads: \x1b", *NAMES[3:]]
    lines = [*WHOLE[:2], *said(names[1]), *said(names[2], "ok", "\x9b")]
    findings = judged([["plan", names], *lines], auto_map=auto_map)
    assert (findings[2].name, findings[2].detail) == ("loads: \\x1b", "\\x9b")


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
# It finds the function that signs and sends, and says what it likes about checks that never ran.
LIAR = """
import gc, os, types
NAMES = NAMES_HERE
for function in gc.get_objects():
    if isinstance(function, types.FunctionType) and function.__name__ == "say":
        if function.__code__.co_argcount == 2:
            send = function
first = next(i for i, name in enumerate(NAMES) if name == "loads: AutoConfig")
send("program", ["loads: AutoConfig", "ok", "forged"])
for name in NAMES[first + 1:]:
    send("program", [name, "running", ""])
    send("program", [name, "ok", "forged"])
send("end", None)
AFTERWARDS
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
@pytest.mark.parametrize("afterwards", ["", "send('program', 'more')", "send('end', None)"])
def test_a_report_that_code_signed_itself_is_marked_as_its_word(afterwards, foreign, tmp_path):
    """Nobody can tell it from a true one; but it is the folder's word, and each line says so."""
    copied = shutil.copytree(foreign, tmp_path / "copied")
    classes = ["AutoConfig", "AutoModelForCausalLM", "AutoModel"]
    names = [NAMES[0], *(f"loads: {auto}" for auto in classes), *NAMES[3:]]
    liar = LIAR.replace("NAMES_HERE", repr(names)).replace("AFTERWARDS", afterwards)
    prepend(copied / FILE, liar)
    findings = check(copied, run_anyway=True)
    if any(f.name == "walls" and f.verdict != "ok" for f in findings):
        pytest.skip("not all walls stand here")
    forged = [finding for finding in findings if finding.detail == "forged"]
    assert {finding.rests_on for finding in forged} == {"ran behind walls"}
    assert "tokenizer loads" not in {finding.name for finding in forged}
    assert (findings[-1].detail == INTERFERED) == bool(afterwards)
    assert f"{len(forged) + bool(afterwards)} only on the word of the folder's" in summary(findings)


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
    findings = {f.name: (f.verdict, f.detail) for f in run_probe(original)}
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
    findings = {f.name: (f.verdict, f.detail) for f in run_probe(copied)}
    assert findings["loads: AutoConfig"][0] == "fail"
    assert "more memory than it is allowed" in findings["loads: AutoConfig"][1]


@pytest.mark.usefixtures("warm_python")
def test_a_folder_that_changes_while_it_is_checked_is_told_so(foreign, tmp_path, monkeypatch):
    copied = shutil.copytree(foreign, tmp_path / "copied")

    def change(*args, **kwargs):
        (copied / "config.json").write_text(json.dumps({"changed": True}))
        return Outcome(walls=dict.fromkeys(behind_walls.ALL, ""))

    monkeypatch.setattr(fresh_process, "run_behind_walls", change)
    assert ("folder", "fail") in [(f.name, f.verdict) for f in run_probe(copied)]


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
    names = planned(CONFIG, CONFIG["auto_map"], {})
    program.write_text(
        "import os\n"
        "def main(say, copy, work):\n"
        f"    say(['plan', {names}])\n"
        f"    say([{names[0]!r}, 'running', ''])\n"
        "    link = os.path.islink(os.path.join(copy, 'model.safetensors'))\n"
        f"    say([{names[0]!r}, 'skip', 'a link' if link else 'a copy'])\n"
    )
    monkeypatch.setattr(fresh_process, "PROBE", program)
    walls, first, _ = run_probe(foreign, without_walls=True)
    assert (walls.name, walls.verdict) == ("walls", "warn")
    assert "there are none on darwin" in walls.detail
    assert "only code that you trust" in walls.detail
    assert (first.verdict, first.detail) == ("skip", "a copy")
