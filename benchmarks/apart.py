"""A contestant in a process of its own, to be timed or weighed.

Engines keep threads that wait by spinning, or bind the process to some cores. So each is timed
alone, and stopped between its calls. What one contestant left in memory would count for the next:
so each is weighed in a fresh process.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .measure import MIB, OURS, ROOT, Absent, Row, Run, Settings, Workload, first_call
from .registry import Benchmark

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # makes Linux forget the highest resident size so far
# glibc returns large blocks when they are freed, but raises what it calls large as it goes. What it
# keeps then is luck: the same step took from 55 to 71 MiB. Naming its default keeps it fixed.
STEADY = {"MALLOC_MMAP_THRESHOLD_": str(128 * 2**10)}
MARK = "answer: "
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def in_own_process(
    benchmark: str,
    label: str,
    contestant: str,
    settings: Settings,
    processes: int = 1,
    tree: Path = ROOT,
) -> Run:
    """Return a Run like the contestant's own; its process ends with `close`.

    Several processes each prepare the contestant and find each other as under torchrun. They run
    the code of `tree`, a checkout of this project.
    """
    task = [benchmark, label, contestant, asdict(settings)]
    others = OtherProcesses(task, environments(processes), tree)
    return Run(others.call, others.outcome, is_rounded=others.is_rounded, close=others.close)


def environments(processes: int) -> list[dict[str, str]]:
    """Return the variables for each process of a group; together they have the threads of one."""
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


def weigh(benchmark: str, workload: Workload, settings: Settings) -> list[Row]:
    """Return the rows of memory, in the order of the contestants."""
    rows, found = [], {}
    for name in workload.contestants:
        try:
            weight = weigh_in_fresh_process(benchmark, workload.label, name, settings) / MIB
        except Absent as reason:
            rows.append(workload.row("MiB", name, note=f"absent: {reason}"))
            continue
        found[name] = weight
        row = workload.row("MiB", name, ours=found.get(OURS))
        if name != OURS and row.ours:
            row.theirs, row.ratio = weight, weight / row.ours
            row.floor = workload.memory_floors.get(name)
        rows.append(row)
    return [row for row in rows if row.note or row.ours is not None]


def weigh_in_fresh_process(benchmark: str, label: str, contestant: str, settings: Settings) -> int:
    """Return the bytes that one call adds."""
    process = OtherProcesses([benchmark, label, contestant, asdict(settings)], [STEADY])
    try:
        return process.ask("weigh")["bytes"]
    finally:
        process.close()


class OtherProcesses:
    """One process, or a group in which the answers of the first count; stopped between questions.

    Raises Absent where the contestant cannot take part.
    """

    def __init__(self, task: list[Any], variables: list[dict[str, str]], tree: Path = ROOT):
        self.name = f"{task[1]}: {task[2]}"
        command = [sys.executable, "-m", "benchmarks", "--answer", json.dumps(task)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.processes = []
        try:
            for added in variables:
                environment = os.environ | added
                self.processes.append(subprocess.Popen(command, cwd=tree, env=environment, **pipes))
            self.is_rounded = self.read()["is_rounded"]
        except BaseException:
            self.close()
            raise

    def call(self) -> None:
        self.ask("call")

    def outcome(self, _: Any) -> dict[str, torch.Tensor]:
        return {name: torch.tensor(values) for name, values in self.ask("outcome").items()}

    def ask(self, what: str) -> dict[str, Any]:
        self.signal(signal.SIGCONT)
        for process in self.processes:
            print(what, file=process.stdin, flush=True)
        return self.read()

    def read(self) -> dict[str, Any]:
        answers = [self.answer_of(process) for process in self.processes]  # wait for all of them
        self.signal(signal.SIGSTOP)
        if "absent" in answers[0]:
            raise Absent(answers[0]["absent"])
        return answers[0]

    def answer_of(self, process: subprocess.Popen) -> dict[str, Any]:
        """Read the next line that is an answer: engines print what they like."""
        for line in process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(f"{self.name} failed in a process of its own")

    def signal(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def serve(task: str, benchmarks: dict[str, Benchmark]) -> None:
    """Answer the process that started this one."""
    if sys.platform == "linux":  # stopped, this one would wait forever for a parent that was killed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for answer in answers(task, benchmarks, sys.stdin):
        print(MARK + json.dumps(answer), flush=True)


def answers(
    task: str, benchmarks: dict[str, Benchmark], questions: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """Prepare one contestant, then answer each question; end where the contestant is absent."""
    benchmark, label, contestant, options = json.loads(task)
    settings = Settings(**options)
    workloads = benchmarks[benchmark].workloads(settings)
    workload = next(workload for workload in workloads if workload.label == label)
    try:
        run, result = workload.contestants[contestant](), None
        yield {"is_rounded": run.is_rounded}
        for question in questions:
            if question.strip() == "call":
                result = first_call(run)
                yield {}
            elif question.strip() == "outcome":
                yield {name: tensor.tolist() for name, tensor in run.outcome(result).items()}
            else:
                read_code()
                yield {"bytes": peak_growth(run.call)}
    except Absent as reason:  # some find out only while they run
        yield {"absent": str(reason)}


def peak_growth(call: Callable[[], Any]) -> int:
    """Return the bytes by which the peak of this process exceeds what it held before."""
    gc.collect()
    # Freed memory that the allocator kept would be used again, and its use go unseen.
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR_REFS.write_text(RESET_PEAK)
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def resident(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def read_code() -> None:
    """Run a tiny training step: code that is read for the first time is not what a run needs."""
    states = torch.ones(8, 8, requires_grad=True)
    scores = states @ states.t()
    torch.nn.functional.cross_entropy(scores.softmax(-1), torch.arange(8)).backward()
