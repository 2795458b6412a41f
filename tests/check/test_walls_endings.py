"""However the code of a folder ends, or does not: the check ends in time and says why, and nothing
that the code started is left."""

import fcntl
import hmac
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hf_tformer.checking import behind_walls
from hf_tformer.checking.behind_walls import (
    ALL,
    HANGS,
    INTERFERED,
    Report,
    run_behind_walls,
    temporary_folder,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are walls on Linux alone")

MAY_FORK = tuple(wall for wall in ALL if wall != "system calls")
# Without a namespace of processes they have to be found one by one.
WITHOUT_INIT = tuple(wall for wall in MAY_FORK if wall != "namespaces")

DAEMONS = """
import fcntl, os, signal, time
def main(say):
    lock = open("lock", "w")
    fcntl.flock(lock, fcntl.LOCK_SH)
    open("started", "w").close()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(5):
        if not os.fork():
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for _ in range(3):
                os.fork()
            open("started", "a").write("x")
            time.sleep(600)
            os._exit(0)  # a daemon that were left would go on in the loop, and fork without end
    while len(open("started").read()) < 40:
        time.sleep(0.01)
    say("started")
"""
BOMB = """
import os, time
def main(say):
    for _ in range(6):  # 64 of them, which is enough to see
        os.fork()
    open("started", "a").write("x")
    time.sleep(600)
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program, and knows whether any process of it is left: each holds a lock."""

    def start(code, **given):
        (tmp_path / "program.py").write_text(code)
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        given = {"timeout": 20, "memory": 2 << 30, "on_disk": True, **given}
        return run_behind_walls(tmp_path / "program.py", work=work, **given)

    return start


def survivors(work):
    """Whether a process that was started there lives: its lock does."""
    with (work / "lock").open("w") as lock:
        for _ in range(100):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.02)
            else:
                return False
    return True


@pytest.mark.parametrize("walls", [MAY_FORK, WITHOUT_INIT], ids=["init", "no-init"])
@pytest.mark.parametrize("end", ["return", "os._exit(3)", "os.kill(os.getpid(), 11)", "hang()"])
def test_no_daemon_survives(end, walls, run, tmp_path):
    code = DAEMONS.replace('say("started")', f'say("started")\n    {end}')
    code += "\ndef hang():\n    while True: pass\n"
    started = time.monotonic()
    outcome = run(code, walls=walls, timeout=2)
    assert time.monotonic() - started < 4
    assert outcome.lines == ["started"]
    reasons = {"return": None, "os._exit(3)": "exit status 3", "hang()": HANGS}
    assert outcome.reason == reasons.get(end, "SIGSEGV")
    assert not survivors(tmp_path / "work")


@pytest.mark.parametrize("walls", [MAY_FORK, WITHOUT_INIT], ids=["init", "no-init"])
def test_many_processes_end_with_the_time(walls, run, tmp_path):
    lock = 'import fcntl\nlock = open("lock", "w")\nfcntl.flock(lock, fcntl.LOCK_SH)\n'
    outcome = run(lock + BOMB, walls=walls, timeout=1.5)
    assert len((tmp_path / "work" / "started").read_text()) > 10
    assert outcome.reason == HANGS
    assert not survivors(tmp_path / "work")


CALLER = """
import sys
from pathlib import Path
from runpy import run_path
run = run_path(sys.argv[1])["run_behind_walls"]
work, walls = Path(sys.argv[3]), sys.argv[4].split(",")
run(Path(sys.argv[2]), work=work, timeout=600, walls=walls, on_disk=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("walls", [MAY_FORK, WITHOUT_INIT], ids=["init", "no-init"])
def test_nothing_survives_the_checking_process(walls, number, tmp_path):
    program, work = tmp_path / "program.py", tmp_path / "work"
    work.mkdir()
    program.write_text(DAEMONS + "    time.sleep(600)\n")
    side = sys.modules[run_behind_walls.__module__].__file__
    command = [sys.executable, "-c", CALLER, side, program, work, ",".join(walls)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as caller:
        try:
            deadline = time.monotonic() + 20
            while not (work / "started").exists() or len((work / "started").read_text()) < 40:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:  # on a loaded machine the daemons may be late
            caller.send_signal(number)
        caller.wait(5)
    assert not survivors(work)


ENDS = {
    "os._exit(0)": "it ended itself",
    "os._exit(7)": "exit status 7",
    "os.abort()": "SIGABRT",
    "os.kill(os.getpid(), 11)": "SIGSEGV",
    "os.kill(os.getpid(), 9)": "SIGKILL, as the system sends it when memory is short",
    "raise SystemExit(0)": "exit status 1",
    "raise ValueError('a reason')": "exit status 1",
    "sys.exit('words')": "exit status 1",
}


@pytest.mark.parametrize("end", ENDS)
def test_an_early_end_is_named(end, run):
    outcome = run(f"import os, sys\ndef main(say):\n    say(1)\n    {end}\n")
    assert (outcome.lines, outcome.reason) == ([1], ENDS[end])
    if "reason" in end:
        assert outcome.stderr_last_line == "ValueError: a reason"


def test_a_program_that_has_said_all_cannot_hold_its_end_up(run):
    code = """
import atexit, threading, time, sys
class Slow:
    def __del__(self): time.sleep(600)
slow = Slow()
atexit.register(time.sleep, 600)
threading.Thread(target=time.sleep, args=(600,)).start()
def main(say):
    sys.slow = slow
    say("all")
"""
    started = time.monotonic()
    outcome = run(code)
    assert (outcome.lines, outcome.reason) == (["all"], None)
    assert time.monotonic() - started < 3


def test_a_flood_of_output_neither_blocks_nor_fills_memory(run):
    code = """
import os
def main(say):
    for _ in range(300):
        os.write(1, b"x" * (1 << 20)); os.write(2, b"y" * (1 << 20))
    os.write(2, b"\\nthe end\\n")
    say("all")
"""
    outcome = run(code)
    assert (outcome.lines, outcome.reason) == (["all"], None)
    assert outcome.stderr_last_line == "the end"


FLOODS = {
    "for i in range(10**9): say('x' * 10**5)": "it said more than 4 MiB",
    "for i in range(10**6): open(f'{i}', 'w').write('x' * (1 << 20))": "it wrote more than",
    "for i in range(10**6): open(f'{i}', 'w')": "it wrote more than",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_words_or_files_is_cut_off(flood, run, monkeypatch):
    monkeypatch.setattr(behind_walls, "FILES", 1000)
    outcome = run(f"def main(say):\n    {flood}\n", disk=30 << 20)
    assert FLOODS[flood] in outcome.reason


ROOM = """
import os
def main(say):
    written = 0
    try:
        for number in range(64):
            {open}
            for _ in range(16):
                written += os.write(file, b"x" * (1 << 18))
    except OSError as error:
        say(error.strerror)
    say(written)
"""
OPEN = {
    "a file": "file = os.open(f'{number}', os.O_CREAT | os.O_RDWR)",
    "a file without a name": "file = os.open('f', os.O_CREAT | os.O_RDWR); os.unlink('f')",
    "a file that never had one": "file = os.open('.', os.O_TMPFILE | os.O_RDWR)",
}


@pytest.mark.parametrize("kind", OPEN)
def test_the_room_for_files_holds_whatever_becomes_of_their_names(kind, run):
    disk = 64 << 20
    outcome = run(ROOM.format(open=OPEN[kind]), disk=disk, on_disk=False)
    if outcome.walls["namespaces"]:
        pytest.skip(outcome.walls["namespaces"])
    said, written = outcome.lines
    assert said == "No space left on device"
    assert disk * 0.9 <= written <= disk


def test_a_file_of_results_outside_of_that_room_reaches_the_caller(run, tmp_path):
    result, other = tmp_path / "result", tmp_path / "other"
    result.touch()
    other.touch()
    code = f"""
def main(say):
    open({str(result)!r}, "w").write("answers")
    open("inside", "w").write("gone with the process")
    open({str(other)!r}, "w")
"""
    outcome = run(code, on_disk=False, results=[result])
    assert "PermissionError" in outcome.stderr_last_line
    assert result.read_text() == "answers"
    assert not (tmp_path / "work" / "inside").exists() or outcome.walls["namespaces"]


@pytest.mark.parametrize("name", ["d", "d" * 250])
def test_folders_deeper_than_can_be_followed_are_cut_off_and_removed(name, run, tmp_path):
    code = f"""
import os, time
def main(say):
    for _ in range(1500):
        os.mkdir({name!r})
        os.chdir({name!r})
    time.sleep(600)
"""
    assert "it wrote more than" in run(code).reason
    with temporary_folder() as folder:
        (tmp_path / "work").rename(folder / "work")
    assert not folder.exists()


FORGERIES = {
    "into every open file": """
    for number in range(64):
        try:
            os.write(number, b'[0, "program", ["forged", "ok", ""]]\\n[1, "end", null]\\n')
        except OSError:
            pass
    os._exit(0)
""",
    "with a key of its own": """
    import hmac
    text = b'[3, "end", null]'
    line = hmac.digest(b"x" * 32, text, "sha256").hex().encode() + b" " + text + b"\\n"
    os.write(next(n for n in range(3, 64) if is_pipe(n)), line)
    os._exit(0)
""",
    "by half a line": """
    os.write(next(n for n in range(3, 64) if is_pipe(n)), b"half")
    os._exit(0)
""",
    "about the walls": """
    import json
    json.dumps = lambda *_, **__: '[2, "walls", {}]'
    say(2)
""",
    "by new functions of json": """
    import json
    json.dumps = lambda *_, **__: "nonsense"
    say(2)
""",
}
IS_PIPE = """
import os, stat
def is_pipe(n):
    try: return stat.S_ISFIFO(os.fstat(n).st_mode)
    except OSError: return False
"""


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_word_is_not_heard(forgery, run):
    outcome = run(f"{IS_PIPE}\ndef main(say):\n    say('true')\n{FORGERIES[forgery]}")
    assert outcome.lines == ["true"]
    assert outcome.reason == INTERFERED


@pytest.mark.parametrize("numbers", [(0, 0), (0, 2), (1,), (0, 1, 1)])
def test_a_word_that_is_repeated_or_left_out_is_seen(numbers):
    """Only code that has found the key, or reads the pipe before the caller does, gets this far."""
    key = b"k" * 32
    reading, writing = os.pipe()
    for number in numbers:
        kind = "program" if number else "walls"
        text = json.dumps([number, kind, number]).encode()
        os.write(writing, hmac.digest(key, text, "sha256").hex().encode() + b" " + text + b"\n")
    os.close(writing)
    report = Report(os.fdopen(reading, "rb"), key)
    report.join(5)
    assert report.fault == INTERFERED


def test_a_word_without_end_is_cut_off():
    reading, writing = os.pipe()
    report = Report(os.fdopen(reading, "rb"), b"k" * 32)
    for _ in range(5):
        os.write(writing, b"x" * (1 << 20))
    assert report.ended.wait(5)  # though the pipe is open
    assert report.fault == "it said more than 4 MiB"
    os.close(writing)
    report.join(5)


def test_words_without_an_end_are_not_complete(run):
    outcome = run("import os\ndef main(say):\n    say(1)\n    os.close(3)\n    say(2)\n")
    assert outcome.lines == [1]
    assert outcome.reason


def test_what_honest_code_does_works(run):
    code = """
import asyncio, mmap, os, shutil, tempfile, threading, time, multiprocessing.pool
from pathlib import Path
def main(say):
    thread = threading.Thread(target=say, args=("thread",)); thread.start(); thread.join()
    with multiprocessing.pool.ThreadPool(4) as pool: say(pool.map(str, range(4)))
    folder = Path(tempfile.mkdtemp()); (folder / "a").touch(); (folder / "a").write_text("a")
    shutil.copy(folder / "a", folder / "b"); shutil.move(folder / "b", folder / "c")
    (folder / "d").mkdir(); (folder / "c").rename(folder / "d" / "c"); os.utime(1)
    say(sorted(str(p.relative_to(folder)) for p in folder.rglob("*")))
    shutil.rmtree(folder)
    say(asyncio.run(asyncio.sleep(0, "asyncio")))
    say([time.tzset(), os.cpu_count() > 0, Path.home().is_dir(), len(os.urandom(4))])
"""
    outcome = run(code)
    assert outcome.reason is None, outcome.stderr_last_line
    assert outcome.lines == [
        "thread",
        ["0", "1", "2", "3"],
        ["a", "d", "d/c"],
        "asyncio",
        [None, True, True, 4],
    ]


def test_it_is_told_what_keeps_it_from_starting(run, tmp_path):
    outcome = run("def main(say): say(1)", walls=(), needed=("files",))
    assert outcome.lines == []
    assert "needs walls" in outcome.stderr_last_line


def test_files_of_the_caller_that_are_open_stay_his(run, tmp_path):
    (tmp_path / "secret").write_text("secret")
    with (tmp_path / "secret").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        code = "import os\ndef main(say): say(sorted(os.listdir('/proc/self/fd')))"
        assert set(run(code).lines[0]) <= {"0", "1", "2", "3", "4"}
    assert Path(tmp_path, "secret").read_text() == "secret"
