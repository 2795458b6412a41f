"""A Python interpreter that has imported torch already, for tests that start many processes.

Importing torch costs each process two seconds or more, and none of them is about torch. A server
imports it once; `executable` is a command that takes the arguments of `python`, has the server fork
a process, and is for its caller that process: input and output, folder, environment, arguments,
signals and exit status. Nothing of the Hugging Face libraries or of this package is imported before
the fork, because they read the environment while they are imported. A second server, the first
one's child, has imported transformers as well, for programs that read of the environment what it
has read (warm_transformers.py).

    command, as `python -c CODE` → socket → server forks keeper → keeper forks program
                                 ← exit status ←

What the server cannot imitate (other options, more open files) is run by the real interpreter.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from pathlib import Path

LIMIT = 1 << 20  # bytes of one request
NEEDED = (
    *("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor"),
    "torch.distributed.checkpoint.state_dict",
)
# What transformers and datasets import besides torch, where it is installed.
WELCOME = (
    *("pandas", "pyarrow.parquet", "matplotlib.pyplot", "sklearn.metrics", "regex", "jinja2"),
    *("yaml", "httpx", "httpx2", "anyio", "h11", "psutil", "filelock", "tokenizers"),
    "safetensors.torch",
)
RARELY = (20_000, 20, 20)  # thresholds of the garbage collector, for many objects that stay
PREFIXES = ("hf_tformer", "conversion", "transformers", "huggingface_hub", "accelerate")

CLIENT = """
import json, os, signal, socket, sys

REAL, SOCKET, SELF, PATH, *ARGUMENTS = sys.argv[1:]
inherited = 0
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        inherited += number > 2 and os.get_inheritable(number)
    except OSError:
        pass  # the listing itself
options, rest = [], list(ARGUMENTS)
while rest and (rest[0] == "-I" or rest[0] == "-W"):
    count = 1 if rest[0] == "-I" else 2
    options, rest = options + rest[:count], rest[count:]
known = rest and (rest[0] in ("-c", "-m") and len(rest) > 1 or not rest[0].startswith("-"))
if inherited or not known:
    os.execv(REAL, [REAL, *ARGUMENTS])
try:
    with open(SOCKET + ".json") as file:
        agrees = all(os.environ.get(name) == value for name, value in json.load(file).items())
except OSError:
    agrees = False  # the second server is not ready yet
same_path = "-I" in options or os.environ.get("PYTHONPATH", "") == PATH  # else other modules
if agrees and same_path and "-W" not in options:
    SOCKET += ".transformers"
server = socket.socket(socket.AF_UNIX)
try:
    server.connect(SOCKET)
except OSError:
    os.execv(REAL, [REAL, *ARGUMENTS])
request = {
    "executable": SELF, "options": options, "arguments": rest,
    "folder": os.getcwd(), "environment": dict(os.environ),
}
socket.send_fds(server, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: server.sendall(bytes([number])))
answer = b""
while len(answer) < 4:
    part = server.recv(4 - len(answer))
    if not part:
        sys.exit("the server of warm_python.py is gone")
    answer += part
status = int.from_bytes(answer, "little", signed=True)
if status < 0:
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


class WarmPython:
    """Starts the server; `executable` is the command that stands for `python`."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.executable, place = folder / "python", folder / "socket"
        client = folder / "client.py"
        client.write_text(CLIENT)
        words = [sys.executable, "-ISE", client, sys.executable, place, self.executable]
        words.append(os.environ.get("PYTHONPATH", ""))
        quoted = " ".join(f"'{word}'" for word in words)
        self.executable.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
        self.executable.chmod(0o755)
        self.real = sys.executable
        self.server = subprocess.Popen(
            [sys.executable, __file__, place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONUTF8": "1"},
        )
        assert self.server.stdout.readline() == b"ready\n"

    def stop(self):
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()


def serve(place):
    for name in NEEDED:
        importlib.import_module(name)
    for name in WELCOME:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    read_too_early = [name for name in sys.modules if name.split(".")[0] in PREFIXES]
    assert not read_too_early, f"these were imported before the fork: {read_too_early}"
    gc.set_threshold(*RARELY)
    if not os.fork():
        serve_transformers(place)
    listener = listen(place)
    print("ready", flush=True)
    answer(listener, lambda environment: None)


def serve_transformers(place):
    with contextlib.redirect_stdout(sys.stderr):
        values = warm_transformers.import_them()
    found = warm_transformers.places()
    listener = listen(f"{place}.transformers")
    about = Path(f"{place}.json")
    about.with_suffix(".new").write_text(json.dumps(values))
    about.with_suffix(".new").rename(about)
    answer(listener, lambda environment: warm_transformers.lead_to(environment, found))


def listen(place):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, bury)
    gc.freeze()  # what is imported stays shared with the programs
    return listener


def answer(listener, adapt):
    """Forks a program for each request; `adapt` takes its environment before it starts.

    It ends with the tests, however they end: then nobody holds its input open any more.
    """
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request, files = receive(connection)
        if program := os.fork():
            keep(program, connection, files)
        connection.close()
        become(request, files)
        adapt(request["environment"])
        end_with(run, *request["arguments"])


def bury(*_):
    """Waits for the keepers that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def receive(connection):
    text, files, _, _ = socket.recv_fds(connection, LIMIT, 3)
    while not text.endswith(b"\n"):
        if not (part := connection.recv(LIMIT)):
            os._exit(0)  # the caller was killed before it had asked for anything
        text += part
    return json.loads(text), files


def keep(program, connection, files):
    """Passes signals on, kills the program with its caller, and says how it ended."""
    for file in (*files, 0, 1, 2):
        os.close(file)
    while True:
        ended, status = os.waitpid(program, os.WNOHANG)
        if ended:
            break
        if select.select([connection], [], [], 0.01)[0]:
            numbers = connection.recv(1)
            with contextlib.suppress(ProcessLookupError):
                if numbers:
                    os.kill(program, numbers[0])
                else:
                    os.killpg(program, signal.SIGKILL)
                    os._exit(0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        connection.sendall(code.to_bytes(4, "little", signed=True))
    os._exit(0)


def become(request, files):
    """In the forked process: everything that a new interpreter would have from its caller."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    random.seed()
    tempfile.tempdir = None  # it was found in the environment of the server
    if threads := os.environ.get("OMP_NUM_THREADS"):
        importlib.import_module("torch").set_num_threads(int(threads))
    os.register_at_fork(after_in_child=renew_threads)
    sys.executable = request["executable"]
    isolated = "-I" in request["options"]
    for option, value in zip(request["options"], request["options"][1:], strict=False):
        if option == "-W":
            sys.warnoptions.append(value)
            warnings._setoption(value)
    paths = [] if isolated else os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path]
    if not isolated:
        how = request["arguments"][0]
        script = how not in ("-c", "-m")
        sys.path.insert(0, str(Path(how).resolve().parent) if script else "")


def renew_threads():
    """After a fork torch makes its threads anew when they are first wanted. Two that want them at
    once, as transformers' loaders do, end in `Invalid thread pool`: here one wants them first."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(torch.get_num_threads())


def end_with(main, *arguments):
    """Ends the process as `main` does, without taking down the many modules that are loaded."""
    status = 0
    try:
        main(*arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        status = 1
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


def run(how, *words):
    """What `python HOW WORDS` does."""
    if how == "-c":
        sys.argv = ["-c", *words[1:]]
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        exec(compile(words[0], "<string>", "exec"), module.__dict__)
    elif how == "-m":
        sys.argv = list(words)
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [how, *words]
        runpy.run_path(how, run_name="__main__")


if __name__ == "__main__":
    import warm_transformers

    sys.path.pop(0)  # this folder is no folder of the programs
    serve(sys.argv[1])
