"""`tformer env`: everything that an issue report needs, and nothing about who writes it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

import hf_tformer
from hf_tformer import environment, fast
from hf_tformer.__main__ import main
from hf_tformer.checking.behind_walls import Outcome
from support.paths import ROOT

ALWAYS = (
    *("hf_tformer", "python", "platform", "processor", "cores", "memory", "torch"),
    *("transformers", "safetensors", "accelerate", "huggingface-hub", "tokenizers"),
    *("accelerators", "threads", "attention", "fast paths", "C++ compiler", "walls of check"),
)


def printed(capsys, *words):
    assert main(["env", *words]) == 0
    return capsys.readouterr().out


def test_a_report_says_what_runs_here(capsys):
    found = json.loads(printed(capsys, "--json"))
    assert set(ALWAYS) <= set(found)
    assert found["hf_tformer"] == hf_tformer.__version__
    assert found["transformers"] == transformers.__version__
    assert found["torch"].startswith(f"{torch.__version__} (")
    assert found["fast paths"] == fast.status()
    assert found["threads"].startswith(f"{torch.get_num_threads()} within")
    assert {"eager", "sdpa"} <= set(found["attention"].split(", "))
    assert found["cores"].startswith(f"{os.cpu_count()} visible")
    assert found["memory"].partition(" GiB")[0] != "0.0"
    assert not [name for name, value in found.items() if "unknown (" in value]


def test_the_text_has_one_line_for_each_fact(capsys, monkeypatch):
    monkeypatch.setitem(environment.ABILITIES, "walls of check", lambda: "all\nstand")
    found = json.loads(printed(capsys, "--json"))
    lines = printed(capsys).splitlines()
    assert [line.split("  ")[0] for line in lines] == list(found)
    assert lines[-1].endswith("all stand")


def test_a_report_names_no_user_no_home_and_no_token(tmp_path):
    """Not even where the compiler, torch and a failing check stand in the user's folders."""
    home, elsewhere = tmp_path / "home" / "quillfeather", tmp_path / "data" / "quillfeather"
    for folder in (home / "bin", elsewhere / "modules"):
        folder.mkdir(parents=True)
    compiler = home / "bin" / "my-g++"
    compiler.write_text('#!/bin/sh\necho "$0 (made by hand) 1.2.3"\n')
    compiler.chmod(0o755)
    (elsewhere / "modules" / "torch.py").write_text("raise ImportError(f'broken: {__file__}')")
    names = {"USER": "quillfeather", "LOGNAME": "quillfeather", "HF_TOKEN": "hf_secretsecret"}
    places = {"HOME": str(home), "USERPROFILE": str(home), "CXX": str(compiler)}
    paths = f"{elsewhere / 'modules'}{os.pathsep}{ROOT}"
    for words in ([], ["--json"]):
        run = subprocess.run(
            [sys.executable, "-m", "hf_tformer", "env", *words],
            env={**os.environ, **names, **places, "PYTHONPATH": paths},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        assert "unknown (ImportError: broken: " in run.stdout
        assert "USER/modules/torch.py" in run.stdout
        for word in ("quillfeather", "hf_secret", str(home)):
            assert word not in run.stdout
        if os.name == "posix":
            assert "my-g++ (made by hand) 1.2.3" in run.stdout


def test_what_is_broken_is_said_and_stops_nothing_else(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(environment, "run_behind_walls", lambda *_, **__: 1 / 0)
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = environment.collect()
    assert found["torch"].startswith("unknown (ModuleNotFoundError: ")
    assert found["walls of check"] == "unknown (ZeroDivisionError: division by zero)"
    assert found["C++ compiler"] == "none (no-such-compiler does not run)"
    assert found["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (
            Outcome(walls={"files": "Function not implemented", "limits": ""}),
            "missing: files (Function not implemented)",
        ),
        (Outcome(walls={"files": "", "limits": ""}), "all stand: files, limits"),
        (Outcome(reason="why"), "missing: all (why)"),
    ],
)
def test_a_missing_wall_is_named_with_its_reason(outcome, expected, monkeypatch):
    monkeypatch.setattr(environment, "run_behind_walls", lambda *_, **__: outcome)
    assert environment.walls() == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ""),
        ({"cpu.max": "max 100000\n"}, ""),
        ({"cpu.max": "150000 100000\n"}, ", limited to 1.5 by the container"),
    ],
)
def test_the_share_of_a_container_is_said(files, expected, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(environment, "GROUP", tmp_path)
    assert environment.cores().endswith(f" usable{expected}")


def test_packages_that_nobody_needs_are_left_out_where_they_are_missing(monkeypatch):
    monkeypatch.setattr(environment, "version_of", lambda name: environment.MISSING)
    monkeypatch.setattr(environment, "ABILITIES", {})
    found = environment.collect()
    assert found["safetensors"] == "not installed"
    assert "peft" not in found


@pytest.mark.parametrize("home", [Path("/home/ann"), Path("/")])
def test_only_whole_folders_are_taken_for_the_home(home, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: home)
    text = "/home/anna/x /home/ann.old ann /data/annex /usr/lib"
    assert environment.without_user(text) == text
