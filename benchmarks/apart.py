"""A contestant in a process of its own, where the threads of the others cannot slow it.

Engines keep threads that wait by spinning, or tie the process to some cores. So each runs alone,
and is stopped while it is not its turn.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys

import torch

from .measure import Absent, Run, first_call, prepare_task, task_of
from .memory import ROOT


def in_own_process(benchmark, label, contestant, settings):
    """A Run like the contestant's own; its process ends with `close`."""
    task = task_of(benchmark, label, contestant, settings)
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "--answer", task],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    other = OtherProcess(process, f"{label}: {contestant}")
    try:
        about = other.read()
        if "absent" in about:
            raise Absent(about["absent"])
    except BaseException:
        other.close()
        raise
    other.stop()
    return Run(other.call, other.outcome, is_rounded=about["is_rounded"], close=other.close)


class OtherProcess:
    def __init__(self, process, name):
        self.process, self.name = process, name

    def call(self):
        self.ask("call")

    def outcome(self, _):
        return {name: torch.tensor(values) for name, values in self.ask("outcome").items()}

    def ask(self, what):
        os.kill(self.process.pid, signal.SIGCONT)
        print(what, file=self.process.stdin, flush=True)
        answer = self.read()
        self.stop()
        return answer

    def read(self):
        """The next line that is an answer: engines print what they like."""
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(f"{self.name} failed in a process of its own")

    def stop(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def close(self):
        self.process.kill()
        self.process.communicate()


MARK = "answer: "
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def serve(task, benchmarks):
    """The other end: prepares one contestant, and runs it each time it is asked to."""
    end_with_parent()
    try:
        run, _ = prepare_task(task, benchmarks)
    except Absent as reason:
        return say({"absent": str(reason)})
    say({"is_rounded": run.is_rounded})
    for line in sys.stdin:
        if line.strip() == "call":
            result = first_call(run)
            say({})
        else:
            say({name: tensor.tolist() for name, tensor in run.outcome(result).items()})


def end_with_parent():
    """Stopped, it would wait forever for one that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def say(answer):
    print(MARK + json.dumps(answer), flush=True)
