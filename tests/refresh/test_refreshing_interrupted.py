"""A refresh that is killed: the folder opens and answers as before, and the next run finishes."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from hf_tformer.checking.package_code import package_code
from support.refreshing import OUTLIVED, content, expect_same_answers, old_folder

pytestmark = pytest.mark.usefixtures("warm_python")

# Kills refreshes of copies of a folder while they write. The code is not read and its answers are
# taken for equal: both take seconds, and write nothing. A copy of each state goes to `states`.
DRIVER = '''
import hashlib, json, os, random, shutil, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
import hf_tformer.model.configuration_base  # takes seconds: not in every process that is forked
from hf_tformer.checking.same_answers import Comparison
from hf_tformer.refreshing import refresh, renewal, replacing

source, states, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
folder = source.with_name("killed")
random.seed(int(sys.argv[4]))
NOTHING = Comparison([], None)
renewal.compare_with_package = lambda *_: NOTHING
renewal.refuse_dangerous = lambda *_, **__: None

def slowly(step):
    """Most of the time goes by in these few steps, and so most kills come between them."""
    def slow_step(*args, **kwargs):
        time.sleep(0.003)
        return step(*args, **kwargs)
    return slow_step

def start():
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            renewal.compare_with_package = lambda *_: (os.write(write, b"."), NOTHING)[1]
            # One name in all of them, so that equal states are equal byte by byte.
            replacing.uuid = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="0" * 32))
            Path.replace, Path.unlink = slowly(Path.replace), slowly(Path.unlink)
            refresh(folder)
        finally:
            os._exit(0)
    os.close(write)
    assert os.read(read, 1), "it failed before it wrote"
    os.close(read)
    return child, time.monotonic()

def content(place):
    files = sorted(path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}

lengths = []
for _ in range(3):
    child, began = start()
    os.waitpid(child, 0)
    lengths.append(time.monotonic() - began)
finished, weights = content(folder), content(source)["model.safetensors"]
seen, died, between, kill = {}, 0, False, 0
while kill < kills or (not between and kill < 9 * kills):  # on a loaded machine most come too late
    kill += 1
    child, began = start()
    time.sleep(random.uniform(0, max(lengths)))
    os.kill(child, (signal.SIGKILL, signal.SIGTERM)[kill % 2])
    died += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    found = content(folder)
    between = between or b"refresh_" in found["config.json"]
    assert found["model.safetensors"] == weights
    state = hashlib.sha256(repr(found).encode()).hexdigest()
    if state not in seen:
        seen[state] = shutil.copytree(folder, states / f"{len(seen)}")
    refresh(folder)
    assert content(folder) == finished, sorted(content(folder))
    assert not [path for path in folder.iterdir() if path.is_dir()]
print(json.dumps({"died": died, "states": len(seen)}))
'''


def kill_many(family, kills, tmp_path):
    source = old_folder(family, tmp_path)
    states = tmp_path / "states"
    states.mkdir()
    run = subprocess.run(
        [sys.executable, "-c", DRIVER, str(source), str(states), str(kills), "0"],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout)
    assert told["died"] > kills / 3, told
    # Which files are in place while config.json leads elsewhere is what kills are about.
    between = [state for state in states.iterdir() if b"refresh_" in read(state, "config.json")]
    assert between, told
    expect_same_answers(sorted(states.iterdir()), family, tmp_path)
    return told


def read(folder, name):
    return (folder / name).read_bytes()


@OUTLIVED
def test_a_folder_whose_refresh_was_killed_opens_and_is_finished_by_the_next(tmp_path):
    kill_many("decoder", 12, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["decoder", "seq2seq"])
def test_a_hundred_and_fifty_kills_leave_folders_that_open(family, tmp_path):
    told = kill_many(family, 150, tmp_path)
    assert told["states"] >= 8, told


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_refresh_that_is_killed_while_it_compares_has_written_nothing(number, tmp_path):
    """Whole programs, at any moment: most of it is the comparison."""
    folder = old_folder("decoder", tmp_path)
    before = content(folder)
    command = [sys.executable, "-m", "hf_tformer", "refresh", str(folder)]
    random.seed(number)
    for _ in range(4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(random.uniform(0.1, 5))
        process.send_signal(number)
        process.communicate(timeout=60)
        now = content(folder)
        assert now == before or "position_bias.py" in now
        expect_same_answers([folder], "decoder", tmp_path)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    code = {name: path.read_bytes() for name, path in package_code("tformer_decoder").items()}
    assert {name: data for name, data in content(folder).items() if name.endswith(".py")} == code
