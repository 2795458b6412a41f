"""How many threads take the steps of a generation, found by timing the steps themselves.

A step is right with any number of threads, so trying another one costs little. Fewer are faster
where products are too small to share, where a container has fewer cores than it shows, and where
other processes need the cores: threads that share a product wait for the last of them.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

import torch
from torch import nn

Prepared = TypeVar("Prepared")
Result = TypeVar("Result")

TRIAL = 2  # steps that are taken with another number of threads; the fastest one counts
FIRST, LONGEST = 4, 1024  # steps between two trials; four times as many whenever nothing changes
MARGIN = 0.95  # of the time so far, which another number has to stay below
SLOWER = 1.5  # times as slow as at the last trial: another process needs the cores now


class Pace:
    """The number of threads for the steps of a model, and how fast the last steps were with it."""

    def __init__(self, most: int):
        self.most = self.threads = most
        self.tries_fewer = True
        self.interval = self.left = FIRST  # steps until the next trial
        self.recent: list[float] = []  # seconds of the last steps
        self.tried: list[float] = []  # seconds of the steps of the trial that goes on
        self.usual = float("inf")  # seconds of a step at the last trial

    @contextmanager
    def step(self) -> Iterator[None]:
        """Let torch use the number of threads for the next step, or one that is tried."""
        wanted = self.threads if self.left > 0 else self.other()
        if wanted != self.most:
            torch.set_num_threads(wanted)
        try:
            yield
        finally:
            if wanted != self.most:
                torch.set_num_threads(self.most)

    def other(self) -> int:
        """Return the number to be tried: half as many or twice as many."""
        fewer, more = max(1, self.threads // 2), min(self.most, self.threads * 2)
        return fewer if more == self.threads or (self.tries_fewer and self.threads > 1) else more

    def note(self, seconds: float) -> None:
        """Take note of how long a step took, and decide at the end of a trial."""
        if self.left == 0:
            self.tried.append(seconds)
            if len(self.tried) == TRIAL:
                self.decide()
            return
        self.left -= 1
        self.recent = [*self.recent, seconds][-TRIAL:]
        if min(self.recent) > SLOWER * self.usual:
            self.left, self.interval = 0, FIRST

    def decide(self) -> None:
        """Go on with the number that was tried if it is faster."""
        if min(self.tried) < MARGIN * min(self.recent):
            self.threads, self.recent, self.interval = self.other(), self.tried, FIRST
        else:
            self.tries_fewer = not self.tries_fewer
            self.interval = min(4 * self.interval, LONGEST)
        self.usual, self.tried, self.left = min(self.recent), [], self.interval


# Stack → (threads of torch, number of sequences) → the pace of its steps, kept between generations.
PACES: weakref.WeakKeyDictionary[nn.Module, dict[tuple[int, int], Pace]] = (
    weakref.WeakKeyDictionary()
)


def run_paced(
    pace: Pace | None, prepare: Callable[[], Prepared], run: Callable[[Prepared], Result]
) -> Result:
    """Return run(prepare()) with the threads of a pace; only `run` is timed."""
    if pace is None:
        return run(prepare())
    with pace.step():
        prepared, start = prepare(), perf_counter()
        result = run(prepared)
        pace.note(perf_counter() - start)
    return result


def pace_of(stack: nn.Module, sequences: int) -> Pace | None:
    """Return the pace of a model's steps, or None where there is nothing to choose."""
    most = torch.get_num_threads()
    if most == 1 or torch.are_deterministic_algorithms_enabled():
        return None
    return PACES.setdefault(stack, {}).setdefault((most, sequences), Pace(most))
