"""Time side by side, in one process unless a task says otherwise; memory in a process of its own.

Nothing is timed before the outputs have been found equal. Contestants take turns, and what counts
is the median of the ratios within a round: whatever else the machine does meets both sides alike.
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

OURS = "hf_tformer"
LEAST_ROUNDS = 7


class Absent(Exception):  # noqa: N818 (a finding, not a fault)
    """A contestant that cannot take part here, and why."""


class Unfair(Exception):  # noqa: N818
    """Contestants that do not compute the same, or a task that would not show it."""


@dataclass(frozen=True)
class Settings:
    """How to measure; `quick` means toy sizes, to see that everything runs."""

    rounds: int = LEAST_ROUNDS
    quick: bool = False
    device: str = "cpu"
    dtype: str = "float32"
    defaults_only: bool = False  # without the tuned forms of the peers

    def pick(self, full, quick):
        return quick if self.quick else full

    @property
    def torch_dtype(self):
        return getattr(torch, self.dtype)


@dataclass
class Run:
    """`call` is timed. `outcome` says, untimed, what its result amounts to, to be compared.

    `before` runs ahead of each call, untimed. `minus` is timed in the same round and taken off: a
    prompt, where only decoding is of interest. `times` is what one call stands for: more than one
    where it is a sample of something longer, less where it does the same thing repeatedly.
    `is_rounded` where its weights are, to eight bits: it writes tokens of its own, and of them the
    number is compared.
    """

    call: Callable[[], Any]
    outcome: Callable[[Any], Any] = lambda result: result
    before: Callable[[], Any] | None = None
    minus: Callable[[], Any] | None = None
    times: float = 1.0
    is_rounded: bool = False
    close: Callable[[], Any] = lambda: None  # when the race is over


@dataclass
class Workload:
    """One task, and who takes part: name → a function that prepares a Run or raises Absent.

    `floors` holds the least ratio promised against a peer: of times, and of memory; `ceiling` the
    most seconds promised of ours. `points` says of which curve a contestant is a point, and at
    which size.
    """

    label: str
    contestants: dict[str, Callable[[], Run]]
    floors: dict[str, float] = field(default_factory=dict)
    memory_floors: dict[str, float] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)  # {"flops": …} or {"bytes": …} of one call
    tolerance: float = 1e-3
    measures: tuple[str, ...] = ("seconds",)  # and "MiB"
    ceiling: float | None = None
    points: dict[str, tuple[str, float]] = field(default_factory=dict)
    apart: bool = False  # each contestant is timed in a process of its own: see apart.py
    processes: dict[str, int] = field(default_factory=dict)  # of those apart; one, unless said


@dataclass
class Count:
    """A task that is neither timed nor weighed: its rows are computed."""

    label: str
    rows: Callable[[], list["Row"]]


@dataclass
class Row:
    """One line of a table: we against one peer."""

    workload: str
    measure: str  # "seconds" or "MiB"
    peer: str
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None  # theirs / ours: above one we are better
    spread: tuple[float, float] | None = None  # quartiles of the ratio over the rounds
    floor: float | None = None
    share: float | None = None  # of the machine's own limit, ours
    share_of: str | None = None
    ceiling: float | None = None
    curve: str | None = None
    size: float | None = None
    note: str = ""


def race(workload, settings, limits):
    """Rows of time: every contestant once in each round, the first place passed around."""
    runs, absent = {}, {}
    try:
        prepare(workload, runs, absent)
        refuse_unequal(workload, runs)  # which warms up, too
        for run in runs.values():
            seconds(run, settings)  # once more: what is compiled may be compiled for a second shape
        times = take_turns(runs, settings)
    finally:
        for run in runs.values():
            run.close()
    return compare_times(workload, times, limits) + name_absent(workload, "seconds", absent)


def prepare(workload, runs, absent):
    for name, make in workload.contestants.items():
        try:
            runs[name] = make()
        except Absent as reason:
            absent[name] = str(reason)


def take_turns(runs, settings):
    times = {name: [] for name in runs}
    for turn in range(settings.rounds):
        names = list(runs)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(seconds(runs[name], settings))
    return times


def task_of(benchmark, label, contestant, settings):
    """What another process is asked to prepare, as an argument of its command."""
    return json.dumps([benchmark, label, contestant, asdict(settings)])


def prepare_task(task, benchmarks):
    """The other end: the Run, and how to measure it; raises Absent."""
    benchmark, label, contestant, options = json.loads(task)
    settings = Settings(**options)
    workloads = benchmarks[benchmark].workloads(settings)
    workload = next(workload for workload in workloads if workload.label == label)
    return workload.contestants[contestant](), settings


def refuse_unequal(workload, runs):
    outcomes = {name: run.outcome(first_call(run)) for name, run in runs.items()}
    for name, outcome in outcomes.items():
        pair = outcomes[OURS], outcome
        if runs[name].is_rounded:
            pair = map(shapes, pair)
        if difference := find_difference(*pair, workload.tolerance):
            raise Unfair(
                f"{workload.label}: {name} and {OURS} do not compute the same, so their times "
                f"mean nothing: {difference}"
            )


def shapes(outcome):
    return {name: list(tensor.shape) for name, tensor in outcome.items()}


def first_call(run):
    if run.before is not None:
        run.before()
    return run.call()


def find_difference(ours, theirs, tolerance):
    """None, or in words what differs. Whole numbers and texts must be the same, the rest close."""
    if isinstance(ours, dict):
        found = (find_difference(ours[name], theirs[name], tolerance) for name in ours)
        return next((f"{name}: {what}" for name, what in zip(ours, found, strict=True) if what), "")
    if not isinstance(ours, torch.Tensor):
        return "" if ours == theirs else f"{str(ours)[:80]} here, {str(theirs)[:80]} there"
    exact = not ours.is_floating_point()
    margins = {"rtol": 0, "atol": 0} if exact else {"rtol": tolerance, "atol": tolerance}
    try:
        torch.testing.assert_close(theirs, ours, check_dtype=False, **margins)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def seconds(run, settings):
    if run.before is not None:
        run.before()
    prefix = 0.0 if run.minus is None else clock(run.minus, settings)
    return (clock(run.call, settings) - prefix) * run.times


def clock(call, settings):
    synchronise(settings)
    start = time.perf_counter()
    call()
    synchronise(settings)
    return time.perf_counter() - start


def synchronise(settings):
    if settings.device == "cuda":
        torch.cuda.synchronize()


def compare_times(workload, times, limits):
    ours = statistics.median(times[OURS])
    share, share_of = limits.share(workload.work, ours)
    ceiling = workload.ceiling
    rows = [
        Row(workload.label, "seconds", OURS, ours, share=share, share_of=share_of, ceiling=ceiling)
    ]
    for name in times.keys() - {OURS}:
        ratios = [b / a for a, b in zip(times[OURS], times[name], strict=True)]
        rows.append(
            Row(
                workload.label,
                "seconds",
                name,
                ours,
                statistics.median(times[name]),
                statistics.median(ratios),
                quartiles(ratios),
                workload.floors.get(name),
            )
        )
    order = list(workload.contestants)
    return sorted(rows, key=lambda row: order.index(row.peer))


def quartiles(values):
    low, _, high = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    )
    return low, high


def name_absent(workload, measure, absent):
    return [
        Row(workload.label, measure, name, note=f"absent: {why}") for name, why in absent.items()
    ]
