"""python -m benchmarks.compare OLD [NAME ...] [--new COMMIT]: two commits in turns.

Both trees run our side of the same tasks, each in processes of its own, on the installed packages.
Every row goes to standard error as it is measured; what differs beyond its spread is printed last.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from . import apart, report
from .measure import LEAST_ROUNDS, OURS, ROOT, Limits, Row, Run, Settings, Workload, race
from .registry import BENCHMARKS

LEAST_DIFFERENCE = 0.02
NO_LIMITS = Limits(flops=1.0, bytes=1.0)  # shares of the machine are not asked for


def main(arguments: list[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    if unknown := set(options.names) - set(BENCHMARKS):
        known = ", ".join(BENCHMARKS)
        print(f"error: there is no benchmark {min(unknown)!r}: choose {known}", file=sys.stderr)
        return 2
    try:
        with checked_out(options.old) as old, checked_out(options.new) as new:
            rows = list(measure(old, new, options))
    except subprocess.CalledProcessError as error:
        print(f"error: {error.stderr.strip()}", file=sys.stderr)
        return 2
    different = [row for row in rows if differs(row)]
    print(f"{len(rows)} rows were measured, of which {len(different)} differ:")
    for row in different:
        print(report.line(asdict(row)))
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description="Measure two commits in turns."
    )
    add = parser.add_argument
    add("old", metavar="OLD", help="commit that is measured beside the new one")
    add("names", nargs="*", metavar="NAME", help="benchmarks to run, by default all of them")
    add("--new", metavar="COMMIT", help="commit that is new, by default the files as they are")
    add("--only", metavar="TEXT", default="", help="part of the names of the tasks to measure")
    add("--rounds", type=int, default=LEAST_ROUNDS, help="rounds of each start, %(default)s")
    add("--quick", action="store_true", help="toy sizes: only to see it run")
    return parser


@contextmanager
def checked_out(commit: str | None) -> Iterator[Path]:
    """Yield a folder that holds a commit, or the files as they are where no commit is given."""
    if commit is None:
        yield ROOT
        return
    git = partial(subprocess.run, cwd=ROOT, check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as parent:
        tree = Path(parent, "tree")
        git(["git", "worktree", "add", "--detach", str(tree), commit])
        try:
            yield tree
        finally:
            git(["git", "worktree", "remove", "--force", str(tree)])


def measure(old: Path, new: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of all tasks that are timed, as soon as they are known."""
    settings = Settings(options.rounds, options.quick, defaults_only=True)
    for name in options.names or BENCHMARKS:
        for workload in BENCHMARKS[name].workloads(settings):
            is_timed = "seconds" in workload.measures and OURS in workload.contestants
            if is_timed and options.only in workload.label:
                trees = {OURS: new, options.old: old}
                if row := compare(name, workload, trees, settings):
                    print(report.line(asdict(row)), file=sys.stderr, flush=True)
                    yield row


def compare(
    benchmark: str, workload: Workload, trees: dict[str, Path], settings: Settings
) -> Row | None:
    """Return the row of both trees, None where one of them cannot take part.

    A process is lucky or unlucky as a whole, in where its memory lies, and more rounds do not show
    it: what differs is measured again with fresh processes, and the smaller difference counts.
    """
    processes = workload.processes.get(OURS, 1)

    def start(tree: Path) -> Run:
        run = apart.in_own_process(benchmark, workload.label, OURS, settings, processes, tree)
        # Tests compare what commits compute. Gradients would take minutes to get here.
        return replace(run, outcome=lambda _: {})

    contestants = {name: partial(start, tree) for name, tree in trees.items()}
    racing = replace(workload, floors={}, work={}, contestants=contestants)
    try:
        row = race(racing, settings, NO_LIMITS)[-1]
        again = race(racing, settings, NO_LIMITS)[-1] if differs(row) else row
    except RuntimeError as error:
        print(f"error: {workload.label}: {error}", file=sys.stderr)
        return None
    return min(row, again, key=lambda one: abs((one.ratio or 1) - 1))


def differs(row: Row) -> bool:
    if row.ratio is None or row.spread is None:
        return False
    low, high = row.spread
    return abs(row.ratio - 1) > LEAST_DIFFERENCE and not low <= 1 <= high


if __name__ == "__main__":
    sys.exit(main())
