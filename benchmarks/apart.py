"""A contestant in a process of its own, where the threads of the others cannot slow it.

Engines keep threads that wait by spinning, or tie the process to some cores. So each runs alone,
and is stopped while it is not its turn.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys

import torch

from .measure import Absent, Run, first_call, prepare_task, task_of
from .memory import ROOT


def in_own_process(benchmark, label, contestant, settings, processes=1):
    """A Run like the contestant's own; its process ends with `close`.

    Several processes each prepare the contestant and know of the others as torchrun lets them.
    """
    task = task_of(benchmark, label, contestant, settings)
    others = OtherProcesses(f"{label}: {contestant}")
    try:
        for environment in environments(processes):
            others.start([sys.executable, "-m", "benchmarks", "--answer", task], environment)
        about = others.read()
        if "absent" in about:
            raise Absent(about["absent"])
    except BaseException:
        others.close()
        raise
    others.signal(signal.SIGSTOP)
    return Run(others.call, others.outcome, is_rounded=about["is_rounded"], close=others.close)


def environments(processes):
    """What each process of a group is told; together they have the threads of one alone."""
    if processes == 1:
        return [{}]
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    group = {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(processes),
        "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // processes)),
    }
    return [{**group, "RANK": str(rank)} for rank in range(processes)]


class OtherProcesses:
    """One process, or a group; what the first one answers counts."""

    def __init__(self, name):
        self.name, self.processes = name, []

    def start(self, command, environment):
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)

    def call(self):
        self.ask("call")

    def outcome(self, _):
        return {name: torch.tensor(values) for name, values in self.ask("outcome").items()}

    def ask(self, what):
        self.signal(signal.SIGCONT)
        for process in self.processes:
            print(what, file=process.stdin, flush=True)
        answer = self.read()
        self.signal(signal.SIGSTOP)
        return answer

    def read(self):
        answers = [self.answer_of(process) for process in self.processes]  # of all, before the next
        return answers[0]

    def answer_of(self, process):
        """The next line that is an answer: engines print what they like."""
        for line in process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(f"{self.name} failed in a process of its own")

    def signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def close(self):
        for process in self.processes:
            process.kill()
            process.communicate()


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
