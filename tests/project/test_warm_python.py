"""What stands for `python` in the tests that start processes is to its caller what `python` is."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
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
    run = python("-c", code.format(names), cwd=tmp_path)
    assert run.stdout.strip() == str([True, False, False, False, False])


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


def test_a_caller_that_is_killed_before_it_asks_leaves_no_process(warm):
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(warm.executable.with_name("socket")))
    children = Path(f"/proc/{warm.server.pid}/task/{warm.server.pid}/children")
    for _ in range(300):
        time.sleep(0.1)
        if not children.read_text():
            break
    else:
        pytest.fail("it waits for a question that nobody asks")
