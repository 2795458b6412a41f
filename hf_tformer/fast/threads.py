"""How many threads take the steps of a generation, found by timing the steps themselves.

A step is right with any number of threads, so trying another one is safe. Fewer are faster where
products are too small to share, where a container has fewer cores than it shows, and where other
processes need the cores: threads that share a product wait for the last of them, and then a step
with two threads may take fifty times as long as one with a single thread. So what is lost by trying
has a limit.
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

MARGIN = 0.95  # of the time so far, which another number has to stay below
LOSS = 0.03  # of the recent time, which may be lost by trying other numbers
FIRST, LONGEST = 8, 128  # steps from one trial to the next: twice as many while nothing changes
FADING = 1 - 1 / 1024  # of the recent time, that of a step earlier
USUAL, TRIED = 1 / 8, 1 / 2  # of a new time in an average: of many steps, of a few trials
OUTLIER = 8.0  # times as long as an average: a longer step counts as so long
CHANGED = 1.5  # times as long or as short as before: other processes came or went


class Pace:
    """The number of threads for the steps of a model, and the seconds of a step with each."""

    def __init__(self, most: int):
        self.most = self.threads = self.taking = most
        self.averages: dict[int, float] = {}
        self.prepared: set[int] = set()  # numbers with which a step was taken: the first is slow
        self.at_trial = float("inf")  # the average with the usual number at the last trial
        self.total = self.lost = 0.0  # recent seconds of all steps, and those lost by trials
        self.since_trial, self.interval = 0, FIRST
        self.tries_fewer = True

    @contextmanager
    def step(self) -> Iterator[None]:
        """Let torch use the number of threads for the next step, or one that is tried."""
        self.taking = self.other() if self.may_try() else self.threads
        if self.taking != self.most:
            torch.set_num_threads(self.taking)
        try:
            yield
        finally:
            if self.taking != self.most:
                torch.set_num_threads(self.most)

    def other(self) -> int:
        """Return the number to be tried: half as many or twice as many."""
        fewer, more = max(1, self.threads // 2), min(self.most, self.threads * 2)
        return fewer if more == self.threads or (self.tries_fewer and self.threads > 1) else more

    def may_try(self) -> bool:
        """Return whether what another number would lose, as far as is known, is in the limit."""
        usual, tried = self.averages.get(self.threads), self.averages.get(self.other())
        if usual is None or (tried is not None and self.since_trial < self.interval):
            return False
        loss = 0.0 if tried is None else max(0.0, tried - usual)
        return self.lost + loss <= LOSS * self.total

    def note(self, seconds: float) -> None:
        """Take note of how long the step took, and go on with the fastest number."""
        taking, is_trial = self.taking, self.taking != self.threads
        self.total = FADING * self.total + seconds
        self.lost *= FADING
        self.since_trial = 0 if is_trial else self.since_trial + 1
        if taking not in self.prepared:
            self.prepared.add(taking)
            return
        before = self.averages.get(taking)
        if before is None:
            self.averages[taking] = seconds
        else:
            counted = min(seconds, OUTLIER * before)
            self.averages[taking] += (TRIED if is_trial else USUAL) * (counted - before)
        if is_trial:
            self.lost += max(0.0, seconds - self.averages[self.threads])
            self.at_trial = self.averages[self.threads]
            self.tries_fewer = not self.tries_fewer
            self.interval = min(2 * self.interval, LONGEST)
        self.decide()

    def decide(self) -> None:
        """Go on with the fastest number, and forget the others where times have changed."""
        usual = self.averages.get(self.threads)
        if usual is None:
            return
        best = min(self.averages, key=self.averages.__getitem__)
        if self.averages[best] < MARGIN * usual:
            self.threads, self.at_trial, self.interval = best, self.averages[best], FIRST
        elif not self.at_trial / CHANGED < usual < self.at_trial * CHANGED:
            self.averages, self.at_trial, self.interval = {self.threads: usual}, usual, FIRST


# Stack → (threads of torch, number of sequences, whether steps with all threads are compiled) → the
# pace of its steps, kept between generations.
PACES: weakref.WeakKeyDictionary[nn.Module, dict[tuple[int, int, bool], Pace]] = (
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


def pace_of(stack: nn.Module, sequences: int, is_compiled: bool = False) -> Pace | None:
    """Return the pace of a model's steps, or None where there is nothing to choose.

    One serves up to twice as many sequences, since finished ones are dropped as it goes.
    """
    most = torch.get_num_threads()
    if most == 1 or torch.are_deterministic_algorithms_enabled():
        return None
    paces, key = PACES.setdefault(stack, {}), (most, sequences.bit_length(), is_compiled)
    if key not in paces:
        paces[key] = Pace(most)
    return paces[key]
