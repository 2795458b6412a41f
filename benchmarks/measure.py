"""Time side by side, in one process unless a task asks for others; memory in a process of its own.

Nothing is timed before the outputs have been found equal. Contestants alternate, and what counts is
the median of the ratios within a round: other load on the machine slows both sides alike.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
OURS = "hf_tformer"
MIB = 2**20
LEAST_ROUNDS, FEWEST_ROUNDS = 7, 3  # the latter of calls that are long
MOST_SPREAD, PATIENCE = 0.05, 3  # between quartiles; times the rounds until a row is as it is
MOST_SECONDS = 20.0  # of rounds, after which none follow: long calls are steady in themselves


class Absent(Exception):  # noqa: N818 (a finding, not a fault)
    """A contestant that cannot take part here, and why."""


class Unfair(Exception):  # noqa: N818
    """Contestants that do not compute the same, or a task that would not show it."""


@dataclass(frozen=True)
class Settings:
    """How to measure; `quick` means toy sizes, to see that everything runs."""

    rounds: int = LEAST_ROUNDS
    quick: bool = False
    defaults_only: bool = False  # without the tuned variants of the peers

    def pick(self, full: Any, quick: Any) -> Any:
        return quick if self.quick else full


@dataclass
class Run:
    """A contestant that is ready: `call` is timed, `outcome` gives what is compared, untimed.

    `before` runs ahead of each call, untimed. `minus` is timed in the same round and subtracted: a
    prefill, where only decoding is of interest. `times` is what one call stands for: more than one
    where it is a sample of something longer, less where it repeats the same work. `is_rounded` is
    for weights of eight bits, which generate tokens of their own: only their number is compared.
    """

    call: Callable[..., Any]
    outcome: Callable[[Any], Any] = lambda result: result
    before: Callable[[], Any] = lambda: None
    minus: Callable[[], Any] | None = None
    times: float = 1.0
    is_rounded: bool = False
    close: Callable[[], Any] = lambda: None  # when the race is over

    def within(self, context: Callable[[], AbstractContextManager]) -> "Run":
        """Return the same run, each call of which happens within a context of its own."""

        def call(*arguments: Any) -> Any:
            with context():
                return self.call(*arguments)

        return replace(self, call=call)


Contestants = dict[str, Callable[[], Run]]  # by name, a function that raises Absent or prepares one


@dataclass
class Workload:
    """One task and its contestants; or `rows` alone, of a task that is neither timed nor weighed.

    `floors` holds the least ratio promised against a peer, of times, `memory_floors` that of
    memory; `ceiling` is the most seconds promised of ours. `points` gives, for contestants that are
    points of a curve, its name and their size.
    """

    label: str
    contestants: Contestants = field(default_factory=dict)
    floors: dict[str, float] = field(default_factory=dict)
    memory_floors: dict[str, float] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)  # {"flops": …} or {"bytes": …} of one call
    tolerance: float = 1e-3
    others: float = 0.0  # share of tokens that may differ: rounding decides between equal ones
    measures: tuple[str, ...] = ("seconds",)  # and "MiB"
    ceiling: float | None = None
    points: dict[str, tuple[str, float]] = field(default_factory=dict)
    apart: bool = False  # each contestant is timed in a process of its own: see apart.py
    processes: dict[str, int] = field(default_factory=dict)  # of those apart; one by default
    rows: Callable[[], list["Row"]] | None = None

    def row(self, measure: str, peer: str, **fields: Any) -> "Row":
        curve, size = self.points.get(peer, (None, None))
        return Row(self.label, measure, peer, curve=curve, size=size, **fields)


Workloads = Iterator[Workload]


@dataclass
class Row:
    """One line of a table: ours beside one peer."""

    workload: str
    measure: str  # "seconds" or "MiB"
    peer: str
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None  # theirs / ours: above one, ours is better
    spread: tuple[float, float] | None = None  # quartiles of the ratio over the rounds
    floor: float | None = None
    share: float | None = None  # of the machine's own limit, ours
    share_of: str | None = None
    ceiling: float | None = None
    curve: str | None = None
    size: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Limits:
    """The most floating point operations and bytes that the machine can do in a second."""

    flops: float
    bytes: float

    def share(self, work: dict[str, float], seconds: float) -> dict[str, Any]:
        """Return the fraction of a limit that a run reached, and of which, as fields of a Row."""
        names = {"flops": "matrix product", "bytes": "read bandwidth"}
        for kind, amount in work.items():
            return {"share": amount / seconds / getattr(self, kind), "share_of": names[kind]}
        return {}


def race(workload: Workload, settings: Settings, limits: Limits) -> list[Row]:
    """Time every contestant once in each round, and return the rows."""
    runs, absent = {}, []
    try:
        for name, prepare in workload.contestants.items():
            try:
                runs[name] = prepare()
            except Absent as reason:
                absent.append(workload.row("seconds", name, note=f"absent: {reason}"))
        if OURS not in runs:
            return absent
        refuse_unequal(workload, runs)  # which warms up, too
        for run in runs.values():
            seconds(run)  # once more: what is compiled may be compiled for a second shape
        times = alternate(runs, settings)
    finally:
        for run in runs.values():
            run.close()
    return compare_times(workload, times, limits) + absent


def alternate(runs: dict[str, Run], settings: Settings) -> dict[str, list[float]]:
    """Return the seconds of each run in each round; another run is the first each time.

    There are more rounds than `settings` says while the ratios are spread, and fewer of long calls.
    """
    names = list(runs)
    times: dict[str, list[float]] = {name: [] for name in names}
    for done in range(settings.rounds * settings.pick(PATIENCE, 1)):
        if done >= FEWEST_ROUNDS and sum(map(sum, times.values())) > MOST_SECONDS:
            break
        is_whole = done > 0 and done % settings.rounds == 0
        if is_whole and not any(is_spread(quartiles(times, name)) for name in names):
            break
        for place in range(len(names)):
            name = names[(done + place) % len(names)]
            times[name].append(seconds(runs[name]))
    return times


def quartiles(times: dict[str, list[float]], name: str) -> tuple[float, float, float]:
    """Return the quartiles of a contestant's times over ours, within each round."""
    ratios = [b / a for a, b in zip(times[OURS], times[name], strict=True)]
    several = ratios if len(ratios) > 1 else ratios * 2
    low, median, high = statistics.quantiles(several, n=4, method="inclusive")
    return low, median, high


def is_spread(quartiles: tuple[float, float, float]) -> bool:
    low, median, high = quartiles
    return high - low > MOST_SPREAD * median


def refuse_unequal(workload: Workload, runs: dict[str, Run]) -> None:
    outcomes = {name: run.outcome(first_call(run)) for name, run in runs.items()}
    for name, outcome in outcomes.items():
        others = 1.0 if runs[name].is_rounded else workload.others
        if difference := find_difference(outcomes[OURS], outcome, workload.tolerance, others):
            raise Unfair(
                f"{workload.label}: {name} and {OURS} do not compute the same, so their times "
                f"mean nothing: {difference}"
            )


def first_call(run: Run) -> Any:
    run.before()
    return run.call()


def find_difference(ours: Any, theirs: Any, tolerance: float, others: float = 0.0) -> str:
    """Describe what differs, or return "". Floats must be close, strings and integers the same, but
    for a share of the integers, the `others`."""
    if isinstance(ours, dict):
        found = ((n, find_difference(ours[n], theirs[n], tolerance, others)) for n in ours)
        return next((f"{name}: {difference}" for name, difference in found if difference), "")
    if not isinstance(ours, torch.Tensor):
        return "" if ours == theirs else f"{str(ours)[:80]} here, {str(theirs)[:80]} there"
    margin = tolerance if ours.is_floating_point() else 0
    if not margin and ours.shape == theirs.shape and (ours != theirs).float().mean() <= others:
        return ""
    try:
        torch.testing.assert_close(theirs, ours, check_dtype=False, rtol=margin, atol=margin)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def seconds(run: Run) -> float:
    run.before()
    prefix = 0.0 if run.minus is None else clock(run.minus)
    return (clock(run.call) - prefix) * run.times


def clock(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare_times(workload: Workload, times: dict[str, list[float]], limits: Limits) -> list[Row]:
    ours = statistics.median(times[OURS])
    rows = []
    for name in times:
        row = workload.row("seconds", name, ours=ours)
        if name == OURS:
            row = replace(row, ceiling=workload.ceiling, **limits.share(workload.work, ours))
        else:
            row.theirs = statistics.median(times[name])
            low, row.ratio, high = quartiles(times, name)
            row.spread = low, high
            row.floor = workload.floors.get(name)
        rows.append(row)
    return rows
