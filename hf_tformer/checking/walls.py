"""Start a program behind walls, and end it with everything that it started.

    python -I walls.py < JOB

    keeper (this process) → forks init, the first process of a namespace → forks the program's
        kills them when its standard input ends: when the caller says so, or is dead

The job is one line of JSON on standard input (behind_walls.py writes it). Walls are raised one by
one in the process that then imports the program: it is behind them from its first line. Each is
tested once it stands. A wall that this kernel does not offer is reported, and the others stand
without it.

Two things stay possible: code can see the names of files outside (not their contents) and use a
processor until its time is over.

The program is a file with a function `main(say, *arguments)`. `say` sends one JSON value to the
caller through the former standard output, with a number and a signature; the key is read before any
part of the program is imported. This stops code that writes into open files. It does not stop code
that searches the memory of its own interpreter.
"""

import hmac
import importlib.util
import json
import mmap
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

LINUX = sys.platform == "linux"
if LINUX:
    sys.path.insert(0, str(Path(__file__).parent))
    import walls_filter
    import walls_kernel

    sys.path.pop(0)  # the package's other files are no modules of the program

SYSTEM = (
    *("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
    *("/etc/localtime", "/usr/share/zoneinfo", "/dev/random", "/dev/urandom"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node"),
)
NEEDED = (
    *("torch", "transformers", "huggingface_hub", "tokenizers", "safetensors", "numpy"),
    *("accelerate", "peft"),
)


def main() -> None:
    job = json.loads(read_line(0))
    if not LINUX:
        threading.Thread(target=end_with_caller, daemon=True).start()
        run_program(job, {"all": f"there are none on {sys.platform}"})
    refused = dict.fromkeys(("users", *walls_kernel.NAMESPACES), "left out")
    if "namespaces" in job["walls"]:
        own = None if job["on_disk"] else job["work"]
        refused = walls_kernel.leave_namespaces(own, job["disk"])
        make_folders(job["work"])
    own_processes = "processes" not in refused
    if not own_processes:
        walls_kernel.adopt_orphans()
    child = os.fork()
    if not child:
        walls_kernel.die_with_parent()
        if own_processes and (program := os.fork()):
            be_quiet()
            os._exit(wait_for(program))
        run_program(job, refused)
    be_quiet()
    keep(child)


def make_folders(work: str) -> None:
    """Start in the folder that the program writes to, which has a home and a place for others."""
    for folder in ("home", "tmp"):
        Path(work, folder).mkdir(exist_ok=True)
    os.chdir(work)


def read_line(file: int) -> bytes:
    """Read up to the end of the line and no further: later input still has a meaning."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(file, 1 << 16)
        if not part:
            sys.exit("walls.py is started by behind_walls.py")
        line += part
    return line


def end_with_caller() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def be_quiet() -> None:
    """Leave the pipes to the program, so that they end with it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def wait_for(program: int) -> int:
    """Reap every orphan until the program itself ends; return its exit status."""
    while True:
        ended, status = os.wait()
        if ended == program:
            return exit_status(status)


def exit_status(status: int) -> int:
    """Return the exit status as a shell does: for a signal, 128 plus its number."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def keep(child: int) -> None:
    """Wait until the child or the caller ends, then kill every process that is left."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended or select.select([0], [], [], 0.02)[0]:
            break
    kill_descendants()
    os._exit(exit_status(status) if ended else 128 + signal.SIGKILL)


def kill_descendants() -> None:
    """Kill all processes below this one, which adopts the orphans of those that it kills."""
    while children := [pid for pid, parent in processes() if parent == os.getpid()]:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)


def processes() -> list[tuple[int, int]]:
    """Return (process, parent) of all visible processes."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                rest = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            found.append((int(entry.name), int(rest[1])))
    return found


def run_program(job: dict, refused: dict[str, str]) -> None:
    """Raise the walls and run the program in this process; do not return."""
    try:
        say = open_report(bytes.fromhex(job.pop("key")))
        stood = raise_walls(job, refused) if LINUX else refused
        say("walls", stood)
        if missing := [name for name in job["needed"] if stood.get(name, "left out")]:
            raise SystemExit(f"what the program may read needs walls that fell: {missing}")
        for program in job["program"]:
            run(Path(program), job["arguments"], lambda value: say("program", value))
        say("end", None)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # nothing of the program runs once its last line is sent


def open_report(key: bytes) -> Callable[[str, object], None]:
    """Close all files except the caller's pipe, and return a function that reports to it."""
    report, write, digest, number = os.dup(1), os.write, hmac.digest, 0
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1) if LINUX else (1,):
        os.dup2(nothing, standard)
    if LINUX:
        os.closerange(3, report)
        os.closerange(report + 1, 1 << 20)

    def say(kind: str, value: object) -> None:
        nonlocal number
        text = json.dumps([number, kind, value]).encode()
        line = digest(key, text, "sha256").hex().encode() + b" " + text + b"\n"
        number += 1
        while line:
            line = line[write(report, line) :]

    return say


def run(path: Path, arguments: list[str], say: Callable[[object], None]) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # as the program is a file of Python
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = program
    spec.loader.exec_module(program)
    program.main(say, *arguments)


def raise_walls(job: dict, refused: dict[str, str]) -> dict[str, str]:
    """Return {wall: why it does not stand, or ""}: a wall that can be climbed does not stand."""
    os.setsid()
    walls_kernel.gain_no_privileges()
    readable = [*SYSTEM, *python_paths(job["home"]), *job["readable"]]
    writable = [job["work"], os.devnull, *job["results"]]
    if "mounts" not in refused:
        writable.append(walls_kernel.SHARED_MEMORY)
    stood: dict[str, str] = {}
    walls = {
        "namespaces": (lambda: names_of(refused), lambda: reach_out(job["caller"])),
        "limits": (
            lambda: walls_kernel.limit(job["memory"], job["disk"], "users" not in refused),
            lambda: mmap.mmap(-1, job["memory"], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
        ),
        "privileges": (walls_kernel.drop_privileges, lambda: os.chroot("/")),
        "files": (
            lambda: walls_kernel.close_files(readable, writable, stood["namespaces"] == ""),
            lambda: Path(job["outside"]).read_bytes(),
        ),
        "system calls": (walls_filter.refuse_calls, lambda: socket.socket(socket.AF_UNIX)),
    }
    for name, (build, climb) in walls.items():
        if name not in job["walls"]:
            stood[name] = "left out"
            continue
        try:
            stood[name] = build() or ""
        except OSError as error:
            stood[name] = error.strerror or str(error)
            continue
        try:
            climb()
        except OSError:
            continue
        stood[name] = stood[name] or "it was raised, but does not hold"
    return stood


def names_of(refused: dict[str, str]) -> str:
    return ", ".join(f"none of {name} ({why})" for name, why in refused.items())


def reach_out(caller: int) -> None:
    """Raise OSError if neither the caller nor the network can be seen."""
    try:
        os.kill(caller, 0)
    except ProcessLookupError:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", 9))  # sends nothing


def python_paths(home: str) -> list[str]:
    """Return the folders of this interpreter and its modules, but none that holds the home.

    Of a folder elsewhere, such as that of a package that is installed in place, only the modules
    are readable that a model needs: beside them may stand anything.
    """
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    own = {os.path.realpath(path) for path in (*prefixes, *libraries) if path}
    for path in map(os.path.realpath, filter(None, sys.path)):
        is_installed = Path(path).name in ("site-packages", "dist-packages")
        if is_installed or any(Path(path).is_relative_to(prefix) for prefix in own):
            own.add(path)
        else:
            own |= {str(Path(path, name)) for name in NEEDED}
    return sorted(path for path in own if not Path(home).is_relative_to(path))


if __name__ == "__main__":
    main()
