"""What the code of a folder cannot do while `tformer check` runs it: every attempt of
wall_attempts.py is stopped, by each of the walls that are meant to stop it, and succeeds without.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from hf_tformer.checking import behind_walls
from hf_tformer.checking.behind_walls import ALL, environment, run_behind_walls
from support import fallen_walls, wall_attempts
from support.wall_attempts import ATTEMPTS, MAY_BE_REFUSED, STOPPED_BY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are walls on Linux alone")

SECRET = "what only the caller may know"
DISK, MEMORY = 1 << 20, 2 << 30


class Listener:
    """A socket of the test's that notes whoever connects or sends."""

    def __init__(self, family, kind, address):
        self.socket, self.heard = socket.socket(family, kind), []
        self.socket.bind(address)
        if kind == socket.SOCK_STREAM:
            self.socket.listen(8)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            if self.socket.type == socket.SOCK_DGRAM:
                self.heard.append(self.socket.recv(64))
                continue
            connection, _ = self.socket.accept()
            self.heard.append(connection)
            with contextlib.suppress(OSError):  # who only connects is gone already
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)


class Outside:
    """Files, listeners and a process for attempts to aim at, and what became of them."""

    def __init__(self, folder, name):
        self.folder, self.work, self.readable = folder, folder / "work", folder / "readable"
        self.outside = folder / "outside"
        for path in (self.work, self.readable, self.outside):
            path.mkdir()
        (self.outside / "secret").write_text(SECRET)
        (self.outside / "removable").touch()
        (self.outside / "marker").write_text("untouched")
        (self.readable / "config.json").write_text("{}")
        self.shared = Path("/dev/shm", name)
        self.shared.write_text(SECRET)
        self.listeners = {
            "tcp": Listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": Listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "unix": Listener(socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "socket")),
            "abstract": Listener(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{name}"),
        }
        self.signals = []
        self.memory = ctypes.create_string_buffer(8)
        target = {
            "secret": str(self.outside / "secret"),
            "outside": str(self.outside),
            "marker": str(self.outside / "marker"),
            "readable": str(self.readable),
            "work": str(self.work),
            "name": name,
            "caller": os.getpid(),
            "group": os.getpgrp(),
            "address": ctypes.addressof(self.memory),
            "tcp": self.listeners["tcp"].socket.getsockname()[1],
            "udp": self.listeners["udp"].socket.getsockname()[1],
            "unix": str(folder / "socket"),
            "abstract": name,
            "memory": 2 * MEMORY,
            "disk": DISK,
        }
        (self.readable / "target.json").write_text(json.dumps(target))
        self.before = self.state()

    def state(self):
        """All that an attempt could change: names, contents, modes and times."""
        found = set()
        for file in (*self.outside.rglob("*"), *self.readable.rglob("*")):
            stat, content = file.stat(), file.read_bytes() if file.is_file() else b""
            found.add((str(file), content, stat.st_mode, stat.st_mtime_ns, stat.st_ctime_ns))
        return found

    def attack(self, walls):
        before = signal.signal(signal.SIGUSR1, lambda *_: self.signals.append(1))
        outcome = run_behind_walls(
            Path(wall_attempts.__file__),
            [self.readable / "target.json"],
            work=self.work,
            readable=[self.readable],
            timeout=60,
            memory=MEMORY,
            disk=DISK,
            walls=walls,
        )
        signal.signal(signal.SIGUSR1, before)
        self.shared.unlink()
        assert outcome.reason is None, outcome
        return outcome.walls, dict(outcome.lines)


@pytest.fixture(scope="module")
def attacks(tmp_path_factory):
    """{walls that were up: (Outside, how they stood, what came of each attempt)}"""
    found = {}
    for walls in (ALL, (), *((wall,) for wall in ALL)):
        folder = tmp_path_factory.mktemp("walls")
        outside = Outside(folder, f"{os.getpid()}-{folder.name}")
        found[walls] = (outside, *outside.attack(walls))
    return found


def test_all_attempts_are_stopped(attacks):
    outside, stood, results = attacks[ALL]
    if fallen := {name: fault for name, fault in stood.items() if fault}:
        pytest.skip(f"this kernel does not raise every wall: {fallen}")
    assert results.keys() == ATTEMPTS.keys()
    assert not [name for name, result in results.items() if result == "done"]
    assert not [result for result in results.values() if result.startswith("ERROR")]
    assert outside.state() == outside.before
    assert not [name for name, listener in outside.listeners.items() if listener.heard]
    assert not outside.signals


@pytest.mark.parametrize("wall", ALL)
def test_each_wall_stops_alone_what_it_is_there_for(wall, attacks):
    _, stood, results = attacks[(wall,)]
    if stood[wall]:
        pytest.skip(f"this kernel does not raise it: {stood[wall]}")
    meant = [name for name, walls in STOPPED_BY.items() if wall in walls]
    assert meant
    assert not [name for name in meant if results[name] == "done"]


def test_without_walls_the_attempts_succeed(attacks):
    """Or the other tests would prove nothing."""
    outside, stood, results = attacks[()]
    assert set(stood.values()) == {"left out"}
    stopped = {name: result for name, result in results.items() if result != "done"}
    assert not {name: result for name, result in stopped.items() if name not in MAY_BE_REFUSED}
    changed = {Path(name).name for name, *_ in outside.state() ^ outside.before}
    assert changed >= {"marker", "removable", "new", "moved", "through", "config.json", "more.py"}
    assert all(listener.heard for listener in outside.listeners.values())
    assert outside.signals


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
def test_an_older_landlock_closes_what_it_can(version, tmp_path, monkeypatch):
    fallen_walls.use_launcher(fallen_walls.LANDLOCK.format(version), monkeypatch, tmp_path)
    (tmp_path / "target").mkdir()
    outside = Outside(tmp_path / "target", f"{os.getpid()}-{version}")
    stood, results = outside.attack(("files",))
    assert "Landlock" in stood["files"]  # the finding says what is missing
    done = [name for name, result in results.items() if result == "done"]
    of_files = [name for name, walls in STOPPED_BY.items() if walls == ("files",)]
    if version == 0:
        assert "read a file" in done
    else:
        assert not set(of_files) & set(done)


@pytest.mark.parametrize(("version", "stands"), [(2, False), (3, True), (5, True)])
def test_namespaces_close_what_an_older_landlock_leaves_open(
    version, stands, tmp_path, monkeypatch
):
    fallen_walls.use_launcher(fallen_walls.LANDLOCK.format(version), monkeypatch, tmp_path)
    (tmp_path / "target").mkdir()
    outside = Outside(tmp_path / "target", f"{os.getpid()}-all-{version}")
    stood, results = outside.attack(ALL)
    if stood["namespaces"]:
        pytest.skip(f"this kernel does not raise it: {stood['namespaces']}")
    assert (stood["files"] == "") is stands
    assert not [name for name, result in results.items() if result == "done"]


def test_nothing_of_the_caller_s_environment_arrives(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "def main(say):\n"
        "    say(dict(os.environ))\n"
        "    say(open('/proc/self/environ').read() + open('/proc/self/cmdline').read())\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    seen, raw = run_behind_walls(program, work=work, timeout=20).lines
    assert seen.keys() <= environment(work).keys() | {"LC_CTYPE"}  # Python sets it
    assert SECRET not in raw
    for name in ("HOME", "TMPDIR", "HF_HOME", "HF_MODULES_CACHE", "XDG_CACHE_HOME"):
        assert Path(seen[name]).is_relative_to(work)


AS_NOBODY = """
import json, os, runpy, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
behind = runpy.run_path(sys.argv[1])
from pathlib import Path
outcome = behind["run_behind_walls"](
    Path(sys.argv[2]), [sys.argv[3]], work=Path(sys.argv[4]), readable=[Path(sys.argv[3]).parent],
    timeout=60, memory=2 << 30, disk=1 << 20)
print(json.dumps([outcome.reason, outcome.stderr_last_line, outcome.walls, dict(outcome.lines)]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="then every test here runs as an ordinary user")
def test_an_ordinary_user_has_the_same_walls():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        pythons = (sys.executable, "/usr/bin/python3")
        python = next((path for path in pythons if started_by_nobody(path, folder)), None)
        if python is None:
            pytest.skip("no Python here can be started by an ordinary user")
        outside = Outside(Path(folder), f"{os.getpid()}-nobody")
        os.chown(outside.work, 65534, 65534)
        files = (behind_walls.__file__, wall_attempts.__file__, outside.readable / "target.json")
        command = [python, "-I", "-c", AS_NOBODY, *files, outside.work]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        outside.shared.unlink()
    reason, message, stood, results = json.loads(done.stdout)
    assert reason is None, message
    if fallen := {name: fault for name, fault in stood.items() if fault}:
        pytest.skip(f"this kernel does not raise every wall for an ordinary user: {fallen}")
    assert not [name for name, result in results.items() if result == "done"]


def started_by_nobody(python, folder):
    """And whether the files are in its reach."""
    readable = (folder, behind_walls.__file__, wall_attempts.__file__)
    code = "import os, sys; reached = all(os.access(p, os.R_OK) for p in sys.argv[1:])"
    with contextlib.suppress(OSError):
        command = [
            python,
            "-I",
            "-c",
            f"{code}; sys.exit(not reached or sys.version_info < (3, 10))",
            *readable,
        ]
        return not subprocess.run(command, user=65534, check=False).returncode
    return False
