"""What stands for `python` in the tests that start processes is to its caller what `python` is."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.paths import ROOT

pytestmark = [
    pytest.mark.slow,  # about the tests alone, of which thousands would fail with it
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.skipif(sys.platform != "linux", reason="is the interpreter itself elsewhere"),
]


def python(*arguments, **options):
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def test_a_program_gets_its_arguments_input_folder_and_environment(tmp_path):
    code = "import os, sys; print(sys.argv[1:], sys.stdin.read(), os.getcwd(), os.environ)"
    run = python("-c", code, "a", "-b", input="text", cwd=tmp_path, env={"ONE": "1"})
    assert run.stdout.startswith(f"['a', '-b'] text {tmp_path} ")
    assert "'ONE': '1'" in run.stdout
    assert "PATH" not in run.stdout


def test_torch_is_there_and_nothing_that_reads_the_environment(tmp_path):
    code = "import sys; print([n in sys.modules for n in {}])"
    names = ["torch", "transformers", "huggingface_hub", "hf_tformer", "pytest"]
    other = {**os.environ, "HF_ENDPOINT": "https://another.place"}
    run = python("-c", code.format(names), cwd=tmp_path, env=other)
    assert run.stdout.strip() == str([True, False, False, False, False])


def wait_for_transformers(warm):
    for _ in range(600):
        if warm.executable.with_name("socket.json").exists():
            return
        time.sleep(0.1)
    pytest.fail("the server that has imported transformers does not come")


PLACES = [("HOME",), ("XDG_CACHE_HOME",), ("HF_HOME", "HF_MODULES_CACHE", "TMPDIR")]


@pytest.mark.parametrize("places", PLACES, ids=" ".join)
def test_transformers_is_there_as_if_it_had_read_the_environment(tmp_path, warm, places):
    """Wherever a program has its folders; the real interpreter says what it has to find."""
    wait_for_transformers(warm)
    code = """
import sys
print("transformers" in sys.modules)
import transformers, tempfile
from huggingface_hub import constants
for name, value in sorted(vars(constants).items()):
    if isinstance(value, (str, bool, int, float)) and not name.startswith("__"):
        print(name, value)
print(transformers.utils.hub.HF_MODULES_CACHE, tempfile.gettempdir())
transformers.dynamic_module_utils.init_hf_modules()
print([path for path in sys.path if path == transformers.utils.hub.HF_MODULES_CACHE])
"""
    folders = {name: str(tmp_path / name) for name in places}
    for folder in folders.values():
        Path(folder).mkdir()
    environment = {**os.environ, **folders}
    run = [sys.executable, warm.real]
    warmed, real = (
        subprocess.run([python, "-c", code], capture_output=True, text=True, env=environment)
        for python in run
    )
    assert warmed.stdout == real.stdout.replace("False", "True", 1), warmed.stderr


OTHERS = [
    ([], {"HF_ENDPOINT": "https://another.place"}),
    ([], {"PYTHONPATH": "another"}),
    (["-W", "ignore"], {}),
]


@pytest.mark.parametrize(("options", "variables"), OTHERS, ids=str)
def test_what_a_program_has_otherwise_it_imports_itself(warm, options, variables):
    wait_for_transformers(warm)
    code = ["-c", "import sys; print('transformers' in sys.modules)"]
    assert python(*code).stdout == "True\n"
    assert python(*options, *code, env={**os.environ, **variables}).stdout == "False\n"


def test_no_folder_stays_that_stands_for_another(tmp_path, warm):
    wait_for_transformers(warm)
    code = """
import gc, sys
gc.unfreeze()
mark = "/stands" + "-for/"
print("transformers" in sys.modules)
for holder in gc.get_objects():
    for value in gc.get_referents(holder):
        if type(value) is str and value.startswith(mark) and len(value) > len(mark):
            print(type(holder), value)
"""
    folders = {name: str(tmp_path) for name in ("HF_HOME", "HF_MODULES_CACHE")}
    run = python("-c", code, env={**os.environ, **folders})
    assert run.stdout.split() == ["True"], run.stderr


ENDS = {
    "print('fine')": (0, "fine", ""),
    "import sys; sys.exit(3)": (3, "", ""),
    "import sys; sys.exit('a reason')": (1, "", "a reason"),
    "1 / 0": (1, "", "ZeroDivisionError: division by zero"),
    "import os; os.kill(os.getpid(), 9)": (-9, "", ""),
    "import atexit; atexit.register(print, 'last')": (0, "last", ""),
}


@pytest.mark.parametrize("code", ENDS)
def test_a_program_ends_as_it_would(code):
    status, printed, error = ENDS[code]
    run = python("-c", code)
    assert (run.returncode, run.stdout.strip()) == (status, printed)
    assert error in run.stderr


def test_a_script_and_a_module_find_their_siblings(tmp_path):
    (tmp_path / "sibling.py").write_text("print('found')")
    (tmp_path / "script.py").write_text("import sibling, sys; print(__name__, sys.argv[1:])")
    assert python(tmp_path / "script.py", "a").stdout.split() == ["found", "__main__", "['a']"]
    run = python("-m", "script", "a", cwd=tmp_path)
    assert run.stdout.split() == ["found", "__main__", "['a']"]
    isolated = python("-I", "-c", "import sibling", cwd=tmp_path)
    assert "No module named 'sibling'" in isolated.stderr


def test_a_program_dies_with_its_caller_and_hears_its_signals(tmp_path):
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
    for number, status in ((signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, -signal.SIGKILL)):
        caller = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        program = int(caller.stdout.readline())
        caller.send_signal(number)
        assert caller.wait(30) == status
        caller.stdout.close()
        for _ in range(300):
            if not os.path.exists(f"/proc/{program}"):  # noqa: PTH110
                break
            time.sleep(0.1)
        else:
            pytest.fail("it outlives its caller")


def test_the_servers_end_with_the_tests_that_are_killed(tmp_path, warm):
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from support.warm_python import WarmPython
warm = WarmPython(Path(sys.argv[2]))
while not warm.executable.with_name("socket.json").exists():
    time.sleep(0.1)
pid = warm.server.pid
print(pid, Path(f"/proc/{pid}/task/{pid}/children").read_text(), flush=True)
time.sleep(100)
"""
    words = [warm.real, "-c", code, ROOT / "tests", tmp_path]
    tests = subprocess.Popen(words, stdout=subprocess.PIPE)
    servers = tests.stdout.readline().split()
    assert len(servers) == 2
    tests.kill()
    tests.wait()
    tests.stdout.close()
    for _ in range(300):
        if not any(Path("/proc", server.decode()).exists() for server in servers):
            break
        time.sleep(0.1)
    else:
        pytest.fail("a server outlives the tests")


def test_a_caller_that_is_killed_before_it_asks_leaves_no_process(warm):
    children = Path(f"/proc/{warm.server.pid}/task/{warm.server.pid}/children")
    before = children.read_text()  # the second server
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(warm.executable.with_name("socket")))
    for _ in range(300):
        time.sleep(0.1)
        if children.read_text() == before:
            break
    else:
        pytest.fail("it waits for a question that nobody asks")
