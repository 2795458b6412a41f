"""Reading a folder takes neither more time nor more memory than is allowed, whatever it holds; and
what is installed in place beside other files does not open those to the code of a folder."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from hf_tformer.checking import CheckError, check, reading_process, walls
from hf_tformer.checking.behind_walls import default_memory
from hf_tformer.checking.files import HOLES
from hf_tformer.checking.findings import READ
from hf_tformer.checking.folder import Folder
from hf_tformer.checking.fresh_process import copy_folder, run_probe
from hf_tformer.checking.reading_process import read
from support.broken_models import CONFIG, write_foreign

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits and holes as Linux has them")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def failed(findings, name):
    return "\n".join(f.detail for f in findings if (f.name, f.verdict) == (name, "fail"))


@LINUX
@pytest.mark.parametrize(
    "element", ["[]", *(pytest.param(x, marks=pytest.mark.slow) for x in ("{}", '{"a":[]}'))]
)
def test_a_json_file_of_millions_of_objects_is_refused_in_seconds(element, folder):
    """60 MB of empty lists took 3.2 GB and five minutes."""
    count = (60 << 20) // (len(element) + 1)
    (folder / "many.json").write_text(f"[{','.join([element] * count)}]")
    started = time.monotonic()
    findings = check(folder, run=False)
    assert time.monotonic() - started < 60
    assert "many.json takes too much memory to be read" in failed(findings, "files")


@pytest.mark.slow
def test_a_large_tokenizer_is_read(folder):
    vocabulary = {f"token {number:07}": number for number in range(900_000)}
    merges = [[f"a{number:05}", f"b{number:05}"] for number in range(400_000)]
    text = json.dumps({"model": {"type": "BPE", "vocab": vocabulary, "merges": merges}})
    assert 30e6 < len(text) < 40e6
    (folder / "tokenizer.json").write_text(text)
    started = time.monotonic()
    assert not failed(check(folder, run=False), "files")
    assert time.monotonic() - started < 30


def test_reading_ends_with_the_time_and_with_the_process(folder, monkeypatch):
    with pytest.raises(CheckError, match=r"reading it takes more than 0\.01 seconds"):
        check(folder, run=False, timeout=0.01)
    monkeypatch.setattr(reading_process, "START", "import os; os.abort()")
    with pytest.raises(CheckError, match=r"the process that read it died \(SIGABRT\)"):
        check(folder, run=False)


def test_the_process_that_reads_imports_nothing_of_the_folder(folder, monkeypatch):
    (folder / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    findings = read(Folder(folder))
    assert {finding.rests_on for finding in findings} == {READ}


@LINUX
def test_a_file_that_is_mostly_a_hole_raises_no_limit_and_is_not_copied(tmp_path, monkeypatch):
    folder = write_foreign(tmp_path / "sparse")
    with (folder / "model-2.safetensors").open("wb") as file:
        file.truncate(1 << 40)
    with (folder / "notes.txt").open("wb") as file:
        file.truncate(HOLES)
    assert "model-2.safetensors is mostly a hole" in failed(check(folder, run=False), "files")
    _, left_out = copy_folder(folder, tmp_path / "copy", False)
    assert sorted(left_out) == ["model-2.safetensors", "notes.txt"]
    given = {}

    def run(*_, **options):
        given.update(options)
        raise InterruptedError

    monkeypatch.setattr("hf_tformer.checking.fresh_process.run_behind_walls", run)
    with pytest.raises(InterruptedError):
        run_probe(folder)
    assert given["memory"] < default_memory(1 << 20)


@LINUX
def test_of_a_package_that_is_installed_in_place_only_its_modules_are_readable(
    tmp_path, monkeypatch
):
    for name in ("transformers", "private"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), os.fspath(Path(sys.prefix, "x"))])
    readable = walls.python_paths("/home/nobody")
    assert str(tmp_path / "transformers") in readable
    assert str(tmp_path) not in readable
    assert str(tmp_path / "private") not in readable
    assert os.path.realpath(Path(sys.prefix, "x")) in readable
