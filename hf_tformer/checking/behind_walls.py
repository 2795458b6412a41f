"""Run a Python program in a process of its own, behind walls: the caller's side of walls.py.

    run_behind_walls → starts walls.py, sends it the job, and reads the program's report
        until it ends, or breaks a limit: then everything that it started is killed

The report is not what the program prints. Its lines are accepted as long as each carries the next
number and the signature; the first that does not, or that follows the end, ends the run.
"""

import contextlib
import hmac
import json
import math
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

LAUNCHER = Path(__file__).with_name("walls.py")
ALL = ("namespaces", "limits", "privileges", "files", "system calls")
KEPT = ("PATH", "LANG", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "SYSTEMROOT")
REPORT_LIMIT = 4 << 20  # bytes
FILES, DEPTH = 10_000, 64  # limits of what it writes: files, and folders in folders
HANGS = "timeout"
INTERFERED = "the code under test interfered with the report"
GIB = 1 << 30


@dataclass
class Outcome:
    """A program's report, and how it ended: `reason` is None if it came to its own end."""

    lines: list = field(default_factory=list)
    reason: str | None = None
    stderr_last_line: str = ""
    walls: dict[str, str] = field(default_factory=dict)  # name → why it does not stand, or ""


def run_behind_walls(
    program: Path | None,
    arguments: Iterable[object] = (),
    *,
    work: Path,
    timeout: float,
    readable: Iterable[Path] = (),
    memory: int | None = None,
    disk: int = 4 * GIB,
    walls: Iterable[str] = ALL,
    needed: Iterable[str] = (),
    results: Iterable[Path] = (),
    on_disk: bool = False,
    python: Path | None = None,  # None for this interpreter
) -> Outcome:
    """Run `main(say, *arguments)` of a file; `lines` are the values that it passed to `say`.

    Without a program nothing runs, and `walls` says which of them stand here. It may read
    `readable`, Python and the system's libraries, and write to the files `results` and in the
    folder `work`; all exist. Where the kernel allows it, `work` is in memory, unless it is
    `on_disk`. `memory` and `disk` are bytes; without the walls `needed` it is not started.
    """
    work, programs = Path(work).resolve(), [Path(program).resolve()] if program else []
    for folder in ("home", "tmp"):
        (work / folder).mkdir(exist_ok=True)
    key = secrets.token_bytes(32)
    beside = work.parent if os.access(work.parent, os.W_OK) else None  # removed with it, if killed
    with tempfile.NamedTemporaryFile(dir=beside) as outside:
        job = {
            "program": [str(path) for path in programs],
            "arguments": [str(argument) for argument in arguments],
            "readable": [os.path.realpath(path) for path in (*programs, *readable)],
            "work": str(work),
            "outside": outside.name,
            "home": os.path.realpath(Path.home()),
            "caller": os.getpid(),
            "memory": memory or default_memory(0),
            "disk": disk,
            "walls": list(walls),
            "needed": list(needed),
            "results": [os.path.realpath(path) for path in results],
            "on_disk": on_disk,
            "key": key.hex(),
        }
        return run_job(job, key, work, timeout, disk, python)


def run_job(
    job: dict, key: bytes, work: Path, timeout: float, disk: int, python: Path | None
) -> Outcome:
    process: Any = subprocess.Popen(  # not None: its three pipes
        [str(python or sys.executable), "-I", str(LAUNCHER)],
        cwd=work,
        env=environment(work),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    report, errors = Report(process.stdout, key), PipeReader(process.stderr)
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        reason = watch(process, report, time.monotonic() + timeout, work, disk)
    finally:
        end(process)
    for reader in (report, errors):
        reader.join(1)  # another process may still hold the pipe
    return Outcome(report.values, reason, errors.last_line(), report.walls)


def default_memory(weights: int) -> int:
    """Return the bytes to allow for weights of this size: a check holds a few float32 copies."""
    return 4 * GIB + 32 * (1 << 20) * (os.cpu_count() or 1) + 16 * weights


def environment(work: Path) -> dict[str, str]:
    """Return the variables that Python needs to start; files are written to `work`.

    There is no token, no cache and no way to the Hub.
    """
    home = str(Path(work, "home"))
    return {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "HOME": home,
        "USERPROFILE": home,
        "USER": "checked",
        "LOGNAME": "checked",
        "TMPDIR": str(Path(work, "tmp")),
        "TEMP": str(Path(work, "tmp")),
        "XDG_CACHE_HOME": home,
        "HF_HOME": home,
        "HF_MODULES_CACHE": str(Path(work, "modules")),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_OFFLINE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # torch.compile would start a compiler
    }


class PipeReader(threading.Thread):
    """Reads a pipe to its end, so that its writer never waits, and keeps the last bytes."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.pipe, self.kept, self.ended = pipe, b"", threading.Event()
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while part := os.read(self.pipe.fileno(), 1 << 16):
                self.take(part)
            self.pipe.close()
        self.ended.set()

    def take(self, part: bytes) -> None:
        self.kept = (self.kept + part)[-(1 << 16) :]

    def last_line(self) -> str:
        lines = [line.strip() for line in self.kept.decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")


class Report(PipeReader):
    """Reads the program's report; `fault` is set by the first line that it cannot have sent."""

    def __init__(self, pipe: IO[bytes], key: bytes) -> None:
        self.key = key
        self.fault: str | None = None
        self.values: list = []
        self.walls: dict[str, str] = {}
        self.number, self.size, self.complete = 0, 0, False
        super().__init__(pipe)

    def take(self, part: bytes) -> None:
        self.size += len(part)
        if self.complete:  # whoever wrote the end did not send it as its last line
            self.fault = INTERFERED
        if self.fault:
            return
        *lines, self.kept = (self.kept + part).split(b"\n")
        for line in lines:
            if not self.accept(line):
                self.fault = INTERFERED
            if self.fault:
                break
        if self.size > REPORT_LIMIT:
            self.fault = f"it said more than {REPORT_LIMIT >> 20} MiB"
        if self.fault or self.complete:
            self.ended.set()

    def accept(self, line: bytes) -> bool:
        if self.complete:
            return False
        signature, _, text = line.partition(b" ")
        expected = hmac.digest(self.key, text, "sha256").hex().encode()
        if not hmac.compare_digest(signature, expected):
            return False
        try:
            number, kind, value = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            return False
        if number != self.number or (kind == "walls") != (number == 0):
            return False
        self.number += 1
        if kind == "walls":
            self.walls = value
        elif kind == "end":
            self.complete = True
        else:
            self.values.append(value)
        return True


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder and remove it, even if its folders are deeper than Python can follow."""
    folder = Path(tempfile.mkdtemp()).resolve()
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder)
        except (OSError, RecursionError):
            if os.name != "posix":
                raise
            subprocess.run(["rm", "-rf", folder], check=True)


def watch(
    process: subprocess.Popen, report: Report, deadline: float, work: Path, disk: int
) -> str | None:
    """Wait until the report ends; return why it has no proper end, or None."""
    while not report.ended.wait(0.1):
        if time.monotonic() > deadline:
            return HANGS
        if process.poll() is not None:
            report.join(2)
            break
        if used(work) > disk:
            return f"it wrote more than the {disk / GIB:.3g} GiB allowed"
    if report.complete:
        report.join(2)  # nothing may follow the end
    if report.fault or (report.complete and not report.kept):
        return report.fault
    if report.kept:
        return INTERFERED
    with contextlib.suppress(subprocess.TimeoutExpired):
        return described(process.wait(max(0.0, min(2.0, deadline - time.monotonic()))))
    return HANGS


def described(status: int) -> str:
    """Return how a process ended that did not finish its report."""
    number = -status if status < 0 else status - 128
    if number == getattr(signal, "SIGKILL", None):
        return "SIGKILL, as the system sends it when memory is short"
    if number > 0 and number in list(signal.Signals):
        return signal.Signals(number).name
    return f"exit status {status}" if status else "it ended itself"


def used(folder: Path) -> float:
    """Return bytes on the disk; infinity where files are too many, or too deep, to be counted."""
    total, count = 0.0, 0
    errors: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=errors.append):
        count += len(folders) + len(names)
        if count > FILES or len(Path(parent).relative_to(folder).parts) > DEPTH:
            return math.inf
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found = Path(parent, name).lstat()
                total += getattr(found, "st_blocks", found.st_size / 512) * 512
    followed = all(isinstance(error, FileNotFoundError) for error in errors)
    return total if followed else math.inf


def end(process: subprocess.Popen) -> None:
    """End the process and all that it started: the keeper kills them when its input ends."""
    with contextlib.suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.close()
    if sys.platform != "linux" and hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
