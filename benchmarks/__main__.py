"""python -m benchmarks [NAME ...] [--json FILE] [--rounds N] [--quick] [--write] [--stale]"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers.utils import logging

from . import apart, machine, report, standing
from .measure import LEAST_ROUNDS, Limits, Row, Settings, Unfair, Workload, race
from .registry import BENCHMARKS, Benchmark


def main(arguments: list[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    if options.answer:
        apart.serve(options.answer, BENCHMARKS)
        return 0
    if fault := check(options):
        print(f"error: {fault}", file=sys.stderr)
        return 2
    if not options.names:
        print("\n".join(f"{b.name:14} {b.title}" for b in BENCHMARKS.values()))
        return 0
    settings = Settings(options.rounds, options.quick, options.defaults_only)
    results, status = [], 0
    names = list(BENCHMARKS) if "all" in options.names else options.names
    if options.stale:
        standing_now = standing_here()
        names = [name for name in names if name not in standing_now]
    for name in names:
        try:
            results.append(measure(BENCHMARKS[name], settings, options))
        except Unfair as fault:  # one of them does not cost the others their hour
            print(f"error: {fault}", file=sys.stderr)
            status = 1
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return status


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure hf_tformer beside its peers."
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="'all', or some of the names listed without any")
    add("--only", metavar="TEXT", default="", help="part of the names of the tasks to measure")
    add("--rounds", type=int, default=LEAST_ROUNDS, help="number of rounds, at least %(default)s")
    add("--quick", action="store_true", help="toy sizes: only to see it run")
    add("--defaults-only", action="store_true", help="peers as they come, without tuning")
    add("--json", type=Path, metavar="FILE", help="file to write the figures to, too")
    add("--write", action="store_true", help="figures kept in RESULTS.md")
    add("--stale", action="store_true", help="only what is stale or of another processor")
    add("--answer", help=argparse.SUPPRESS)  # the process that apart.py starts
    return parser


def check(options: argparse.Namespace) -> str:
    """Return one sentence on what is wrong with the command, or nothing."""
    unknown = set(options.names) - {*BENCHMARKS, "all"}
    if unknown:
        return f"there is no benchmark {min(unknown)!r}: choose all, {', '.join(BENCHMARKS)}"
    if options.rounds < LEAST_ROUNDS and not options.quick:
        return f"--rounds is {options.rounds}: a median needs at least {LEAST_ROUNDS}, or --quick"
    if options.write and (options.quick or options.only):
        return "--write keeps whole benchmarks at full size: leave out --quick and --only"
    return ""


def standing_here() -> set[str]:
    """Return the benchmarks whose kept figures are of this processor and of code that stands."""
    kept = report.saved(BENCHMARKS)
    return {r["name"] for r in kept if standing.is_from_here(r) and not standing.is_stale(r)}


def measure(
    benchmark: Benchmark, settings: Settings, options: argparse.Namespace
) -> dict[str, Any]:
    print(f"{benchmark.title} ({benchmark.name})", flush=True)
    limits, commit = machine.measure_limits(settings), standing.commit_of(benchmark.name)
    rows = []
    for workload in benchmark.workloads(settings):
        if options.only in workload.label:
            for found in map(asdict, figures(benchmark, workload, settings, limits)):
                rows.append(found)
                print(report.line(found), flush=True)
    result = {
        "name": benchmark.name,
        "title": benchmark.title,
        "about": {"commit": commit, **machine.describe(settings)},
        "limits": asdict(limits),
        "rows": rows,
    }
    for line in (*report.exponents(rows), *machine.products()):
        print(line, flush=True)
    if options.write:
        report.save(result)
        report.write(BENCHMARKS)
    return result


def figures(
    benchmark: Benchmark, workload: Workload, settings: Settings, limits: Limits
) -> Iterator[Row]:
    """Yield the rows of a task as soon as they are known."""
    if workload.rows:
        yield from workload.rows()
        return
    if "seconds" in workload.measures:
        racing = separated(workload, benchmark, settings) if workload.apart else workload
        yield from race(replace(racing, others=benchmark.others), settings, limits)
    if "MiB" in workload.measures:
        yield from apart.weigh(benchmark.name, workload, settings)


def separated(workload: Workload, benchmark: Benchmark, settings: Settings) -> Workload:
    """Return the same task with contestants that prepare processes of their own."""
    start = partial(apart.in_own_process, benchmark.name, workload.label)
    starts = {
        name: partial(start, name, settings, workload.processes.get(name, 1))
        for name in workload.contestants
    }
    return replace(workload, contestants=starts)


if __name__ == "__main__":
    sys.exit(main())
