"""Where a wall is missing, no code of a folder runs unless somebody says so: it is read, a sentence
says which wall is missing and what to do, and nothing is judged.
"""

import json
import shutil
from pathlib import Path

import pytest

import hf_tformer
from hf_tformer.__main__ import main
from hf_tformer.checking import behind_walls, fresh_process, permission
from hf_tformer.checking.permission import is_known
from support.broken_models import FILE, prepend, write_foreign
from support.fallen_walls import MACHINES, move_to
from support.families import DECODER

pytestmark = pytest.mark.usefixtures("warm_python")

PROBE = """
import json, os, sys
sys.path.insert(0, {checking!r})
from probe_plan import TOKENIZER, planned

def main(say, copy, work):
    open({mark!r}, "a").write("it ran")
    config = json.load(open(os.path.join(copy, "config.json")))
    names = planned(config, config["auto_map"], dict())
    say(["plan", names])
    for name in names:
        say([name, "running", ""])
        say([name, "skip" if name == TOKENIZER else "ok", ""])
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write_foreign(tmp_path_factory.mktemp("sound") / "sound")


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """Exists once anything of a folder could have run: the probe that loads it is replaced."""
    path = tmp_path / "mark"
    (tmp_path / "probe.py").write_text(
        PROBE.format(mark=str(path), checking=str(fresh_process.PROBE.parent))
    )
    monkeypatch.setattr(fresh_process, "PROBE", tmp_path / "probe.py")
    return path


def failed(findings):
    return {f.name: f.detail for f in findings if f.verdict == "fail"}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("large", [False, True], ids=["copied", "linked"])
def test_unknown_code_is_read_and_not_run(machine, large, sound, mark, tmp_path, monkeypatch):
    words = move_to(machine, monkeypatch, tmp_path)
    if large:
        monkeypatch.setattr(fresh_process, "LARGE", 1000)
    findings = hf_tformer.check(sound)
    assert not mark.exists()
    assert list(failed(findings)) == ["walls"]
    sentence = failed(findings)["walls"]
    assert sentence.startswith("not judged: no code was run, because walls are missing here")
    assert words in sentence
    assert any(remedy in sentence for remedy in permission.REMEDIES.values())
    assert "--without-walls" in sentence
    assert ("safety", "ok") in [(f.name, f.verdict) for f in findings]  # it was read


def test_the_exit_status_is_that_of_nothing_judged(sound, mark, tmp_path, monkeypatch, capsys):
    move_to("macOS", monkeypatch, tmp_path)
    assert main(["check", str(sound)]) == 2
    assert "use Linux, which may be a virtual machine" in capsys.readouterr().out
    assert main(["check", str(sound), "--json"]) == 2
    assert "walls" in [f["name"] for f in json.loads(capsys.readouterr().out)]
    assert main(["check", str(sound), "--no-run"]) == 0
    assert not mark.exists()


def test_dangerous_code_stays_a_failure_there(sound, mark, tmp_path, monkeypatch):
    move_to("a container", monkeypatch, tmp_path)
    folder = shutil.copytree(sound, tmp_path / "folder")
    prepend(folder / FILE, "import subprocess\n")
    assert main(["check", str(folder)]) == 3
    assert main(["check", str(folder), "--run-anyway"]) == 3  # which does not mean without walls
    assert main(["check", str(folder), "--without-walls"]) == 3  # nor the other way round
    assert not mark.exists()


def test_somebody_may_say_so(sound, mark, tmp_path, monkeypatch, capsys):
    move_to("a kernel without Landlock", monkeypatch, tmp_path)
    mark = tmp_path / "mark"
    assert main(["check", str(sound), "--without-walls"]) in (0, 1)
    assert mark.exists()
    output = capsys.readouterr().out
    assert "warn  walls" in output
    assert "run only code that you trust" in output


# Code of the installed package


@pytest.fixture
def ours(tmp_path):
    DECODER.build().save_pretrained(tmp_path / "ours")
    return tmp_path / "ours"


def test_code_of_the_package_is_known_and_runs_without_walls(ours, mark, tmp_path, monkeypatch):
    move_to("macOS", monkeypatch, tmp_path)
    assert is_known(ours)
    findings = hf_tformer.check(ours)
    assert mark.exists()
    assert not failed(findings)


def add(name, content=""):
    def change(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)

    return change


def edit(**values):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def link(folder):
    """To code that is ours now, and may be another's in a moment."""
    elsewhere = (folder / "layers.py").rename(folder.parent / "layers.py")
    (folder / "layers.py").symlink_to(elsewhere)


MAKE_UNKNOWN = {
    "one byte": lambda f: (f / "layers.py").write_bytes((f / "layers.py").read_bytes() + b"\n"),
    "a file more": add("notes.py"),
    "a file below": add("custom_generate/generate.py"),
    "a file in litter": add("__pycache__/evil.py"),
    "a file that exchanged its name": lambda f: shutil.copy(f / "losses.py", f / "norms.py"),
    "a file that cannot be parsed": add("more.py", "x ="),
    "a link": link,
    "a pickle": add("pytorch_model.bin"),
    "native code": add("layers.so"),
    "code of another repository": edit(auto_map={"AutoConfig": "a/b--c.D"}),
    "attention from another repository": edit(_attn_implementation="a/b"),
    "an adapter": add("adapter_config.json", '{"base_model_name_or_path": "a/b"}'),
    "damaged JSON": add("tokenizer_config.json", "{"),
}


@pytest.mark.parametrize("how", MAKE_UNKNOWN)
def test_whatever_else_a_folder_holds_makes_it_unknown(how, ours):
    MAKE_UNKNOWN[how](ours)
    assert not is_known(ours)


def test_code_of_another_release_needs_walls(ours, mark, tmp_path, monkeypatch):
    move_to("macOS", monkeypatch, tmp_path)
    MAKE_UNKNOWN["one byte"](ours)
    findings = hf_tformer.check(ours)
    assert list(failed(findings)) == ["walls"]
    code = next(f.detail for f in findings if f.name == "code")
    assert "their answers were not compared: no code was run" in code
    assert not mark.exists()


def test_weights_may_lie_elsewhere(ours, tmp_path):
    elsewhere = (ours / "model.safetensors").rename(tmp_path / "weights.safetensors")
    (ours / "model.safetensors").symlink_to(elsewhere)
    assert is_known(ours)


def test_no_program_says_which_walls_stand(tmp_path, monkeypatch):
    outcome = behind_walls.run_behind_walls(None, work=tmp_path, timeout=20)
    assert (outcome.reason, outcome.lines, set(outcome.walls)) == (None, [], set(behind_walls.ALL))
    words = move_to("another processor", monkeypatch, tmp_path)
    outcome = behind_walls.run_behind_walls(None, work=tmp_path, timeout=20)
    with pytest.raises(permission.NoWallsError, match="system calls") as told:
        permission.refuse_missing(outcome, permission.MUST_STAND)
    assert words in str(told.value)


def test_a_launcher_that_dies_is_no_wall(sound, mark, tmp_path, monkeypatch):
    (tmp_path / "launcher.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(behind_walls, "LAUNCHER", Path(tmp_path, "launcher.py"))
    assert "ended early" in failed(hf_tformer.check(sound))["walls"]
