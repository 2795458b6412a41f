"""Work that is killed at any moment leaves the whole result or none, and its rests are removed."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hf_tformer.atomic_folders import remove_rests, undone_by_signals, unfinished_folder
from support.families import DECODER
from support.hub_server import HubServer, environment
from support.paths import ROOT, TESTS

pytestmark = [
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.skipif(sys.platform != "linux", reason="locks and signals as Linux has them"),
]

RESTS = re.compile(r"rest-[0-9a-f]{8}")


def start(*words, **options):
    paths = (TESTS, ROOT / "examples", ROOT)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    variables |= options.pop("environment", {})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(command, env=variables, **pipes, **options)


def kill_often(work, count, folder):
    process = start("-m", "support.killing", work, count, folder)
    told, complaint = process.communicate()
    assert process.returncode == 0, complaint[-3000:]
    outcomes = json.loads(told)
    assert sum(times for name, times in outcomes.items() if "rests" not in name) == count
    ends = {name.split()[1] for name, times in outcomes.items() if times}
    assert ends >= {"whole", "absent"}, outcomes  # else no kill came in the middle
    assert count < 100 or outcomes["rests of SIGKILL"], outcomes
    return outcomes


@pytest.mark.parametrize("work", ["convert", "publish", "save"])
def test_killed_work_is_whole_or_absent_and_leaves_nothing(work, tmp_path):
    """Its source is unchanged; SIGTERM and SIGHUP clean up at once, after SIGKILL the next run."""
    kill_often(work, 12, tmp_path)


KILLS = [("convert", 200), ("publish", 200), ("save", 100), ("prepare", 100)]


@pytest.mark.slow
@pytest.mark.parametrize(("work", "count"), KILLS)
def test_many_kills_leave_nothing_half_done(work, count, tmp_path):
    print(work, kill_often(work, count, tmp_path))


HOLDING = """
import re, sys, time
from pathlib import Path
from hf_tformer.atomic_folders import unfinished_folder
with unfinished_folder(Path(sys.argv[1]), "rest-", "", re.compile("rest-[0-9a-f]{8}")) as folder:
    (folder / "file").write_text("half")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_the_folder_of_a_living_process_is_left_alone(tmp_path):
    processes = [start("-c", HOLDING, tmp_path) for _ in range(2)]
    folders = [Path(process.stdout.readline().strip()) for process in processes]
    with unfinished_folder(tmp_path, "rest-", "", RESTS) as mine:
        assert sorted(tmp_path.iterdir()) == sorted([*folders, mine])
    processes[0].kill()
    processes[0].wait()
    assert folders[0].exists()
    deadline = time.monotonic() + 10  # on a busy machine its lock outlives it by a moment
    while folders[0].exists() and time.monotonic() < deadline:
        remove_rests(tmp_path, RESTS)
    assert list(tmp_path.iterdir()) == [folders[1]]
    processes[1].terminate()
    assert processes[1].wait() == -signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_only_what_is_called_like_a_rest_is_removed(tmp_path):
    for name in ("rest-0123456", "rest-01234567x", "a rest-01234567", "rest-nothexat"):
        (tmp_path / name).mkdir()
    (tmp_path / "rest-00000000").write_text("a file")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "rest-11111111").symlink_to("mine")
    before = sorted(tmp_path.rglob("*"))
    remove_rests(tmp_path, RESTS)
    assert sorted(tmp_path.rglob("*")) == before


def test_many_at_once_take_nothing_from_each_other(tmp_path):
    """Making a folder and locking it are two steps; others clean up in between."""
    faults = []

    def work():
        try:
            for _ in range(50):
                with unfinished_folder(tmp_path, "rest-", "", RESTS) as folder:
                    (folder / "file").write_text("whole")
                    time.sleep(0.001)
                    assert (folder / "file").read_text() == "whole"
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert not list(tmp_path.iterdir())


def test_a_program_that_handles_a_signal_itself_keeps_its_own_way():
    called = []
    signal.signal(signal.SIGTERM, lambda number, frame: called.append("own"))
    try:
        with undone_by_signals(lambda: called.append("undone")):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert called == ["own"]
    with undone_by_signals(lambda: None):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


READ_FOR_LONG = """
import sys, tempfile
from pathlib import Path
from hf_tformer.publishing import upload
tempfile.tempdir = sys.argv[2]
upload.PROBE = Path(sys.argv[3])
upload.publish(sys.argv[1], "user/tiny")
"""


READER = """
import time
def main(say, *_):
    open("reads", "w").close()
    time.sleep(99)
"""


def test_the_process_that_reads_back_ends_with_the_one_that_published(tmp_path):
    model, staging = tmp_path / "model", tmp_path / "tmp"
    DECODER.build().save_pretrained(model)
    staging.mkdir()
    (tmp_path / "reader.py").write_text(READER)
    with HubServer() as hub:
        variables = environment(hub, tmp_path / "home")
        places = (model, staging, tmp_path / "reader.py")
        process = start("-c", READ_FOR_LONG, *places, environment=variables)
        wait_for(lambda: processes_in(staging))  # what it writes lies in memory, out of sight
        process.terminate()
        assert process.wait() == -signal.SIGTERM
        assert set(hub.files("user/tiny")) >= {"config.json", "model.safetensors"}
    wait_for(lambda: not processes_in(staging))
    assert not list(staging.iterdir())


def processes_in(folder):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += [process] if str((process / "cwd").readlink()).startswith(str(folder)) else []
    return found


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
