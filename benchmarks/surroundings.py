"""The same tasks on an idle machine, a loaded one, and with other numbers of cores and threads.

What is chosen by timing has to hold wherever a process runs: beside other work, in a container with
fewer cores than it shows, and with the threads that its user sets.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import torch

from .decoding import generation, llama_pair, one_pass, prompt
from .measure import Contestants, Run, Settings, Workload, Workloads
from .peers import Pair
from .seq2seq import pair_of, sources

BUSY = [sys.executable, "-S", "-c", "while True: pass"]
NEVER_SLOWER = 0.97  # of theirs, in each surrounding
Surrounding = Callable[[], AbstractContextManager[None]]


def surroundings(settings: Settings) -> Workloads:
    for task, pair, contestants in tasks(settings):
        for name, surrounding in SURROUNDINGS.items():
            yield Workload(
                f"{task}, {name}",
                {side: within(prepare, surrounding) for side, prepare in contestants.items()},
                {pair.name: NEVER_SLOWER},
            )


def tasks(settings: Settings) -> Iterator[tuple[str, Pair, Contestants]]:
    """Yield small tasks, which cost calls, and larger ones, which read and multiply weights."""
    for millions, rows, length in ((3, 1, 128), (19, 1, 64), (3, 16, 64)):
        pair, length = llama_pair(settings, millions), settings.pick(length, 6)
        how = generation, prompt(pair, settings.pick(rows, min(rows, 3)), 5), length
        yield f"{millions}M parameters, batch {rows}", pair, pair.contestants(*how)
    pair = pair_of("marian", settings, 256, 3)
    how = generation, sources(pair, 1, 9), settings.pick(48, 6)
    yield "marian, 256 wide, batch 1", pair, pair.contestants(*how)
    pair = llama_pair(settings, 19)
    how = one_pass, prompt(pair, 1, settings.pick(512, 9))
    yield "a prompt of 512 tokens, 19M parameters", pair, pair.contestants(*how)


def within(prepare: Callable[[], Run], surrounding: Surrounding) -> Callable[[], Run]:
    return lambda: prepare().within(surrounding)


@contextmanager
def two_busy_processes() -> Iterator[None]:
    others = [subprocess.Popen(BUSY) for _ in range(2)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def one_core() -> Iterator[None]:
    """Let all threads of this process share a core, as in a container that shows more of them."""
    before = os.sched_getaffinity(0)
    try:
        set_cores({min(before)})
        yield
    finally:
        set_cores(before)


def set_cores(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


SURROUNDINGS: dict[str, Surrounding] = {
    "idle": nullcontext,
    "beside two busy processes": two_busy_processes,
    "on one core": one_core,
    **{f"OMP_NUM_THREADS={number}": partial(threads, number) for number in (1, 2, 4)},
}
