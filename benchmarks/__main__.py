"""python -m benchmarks [NAME ...] [--json FILE] [--rounds N] [--quick] [--write]"""

import argparse
import json
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from transformers.utils import logging

from . import apart, curves, machine, memory, report
from .measure import LEAST_ROUNDS, Count, Settings, Unfair, race
from .registry import BENCHMARKS


def main(arguments=None):
    options = build_parser().parse_args(arguments)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    if options.answer:
        apart.serve(options.answer, BENCHMARKS)
        return 0
    if options.weigh:
        print(json.dumps(memory.answer(options.weigh, BENCHMARKS)))
        return 0
    if fault := check(options):
        print(f"error: {fault}", file=sys.stderr)
        return 2
    if not options.names:
        print("\n".join(f"{b.name:14} {b.title}" for b in BENCHMARKS.values()))
        return 0
    results, faults = run(options)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 1 if faults else 0


def build_parser():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Beside our peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="'all', or some of those listed")
    parser.add_argument("--only", metavar="TEXT", default="", help="tasks whose name contains it")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help="at least %(default)s")
    parser.add_argument("--quick", action="store_true", help="toy sizes: only to see it run")
    parser.add_argument("--defaults-only", action="store_true", help="no tuned forms of the peers")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda has not been run yet, and the sizes are those of a CPU",
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--write", action="store_true", help="keep the figures in RESULTS.md")
    parser.add_argument("--answer", help=argparse.SUPPRESS)  # the other end of in_own_process
    parser.add_argument("--weigh", help=argparse.SUPPRESS)  # the other end of memory.weigh
    return parser


def check(options):
    """One sentence on what is wrong with the command, or none."""
    unknown = set(options.names) - {*BENCHMARKS, "all"}
    if unknown:
        return f"there is no benchmark {min(unknown)!r}: choose all, {', '.join(BENCHMARKS)}"
    if options.rounds < LEAST_ROUNDS and not options.quick:
        return f"--rounds is {options.rounds}: a median needs at least {LEAST_ROUNDS}, or --quick"
    if options.write and (options.quick or options.only):
        return "--write keeps whole benchmarks at full size: leave out --quick and --only"
    return ""


def run(options):
    settings = Settings(
        options.rounds, options.quick, options.device, options.dtype, options.defaults_only
    )
    names = BENCHMARKS if "all" in options.names else options.names
    results, faults = [], []
    for name in names:
        try:
            results.append(measure(BENCHMARKS[name], settings, options))
        except Unfair as fault:  # one of them does not cost the others their hour
            faults.append(fault)
    return results, faults


def measure(benchmark, settings, options):
    print(f"{benchmark.title} ({benchmark.name})", flush=True)
    limits = machine.measure_limits(settings)
    rows = []
    for workload in benchmark.workloads(settings):
        if options.only not in workload.label:
            continue
        for found in figures(benchmark, workload, settings, limits):
            rows += found
            print("\n".join(report.line(asdict(row)) for row in found), flush=True)
    result = {
        "name": benchmark.name,
        "title": benchmark.title,
        "about": machine.describe(settings),
        "limits": asdict(limits),
        "rows": [asdict(row) for row in rows],
    }
    for line in curves.exponents(result["rows"]):
        print(line, flush=True)
    if options.write:
        report.save(result)
        report.PAGE.write_text(report.page(report.saved(BENCHMARKS)), encoding="utf-8")
    return result


def figures(benchmark, workload, settings, limits):
    """Rows, as soon as they are known."""
    if isinstance(workload, Count):
        yield workload.rows()
        return
    if "seconds" in workload.measures:
        racing = separated(workload, benchmark, settings) if workload.apart else workload
        yield placed(race(racing, settings, limits), workload)
    if "MiB" in workload.measures:
        yield placed(memory.weigh(benchmark.name, workload, settings), workload)


def separated(workload, benchmark, settings):
    """The same task, where each contestant prepares a process."""
    start, number = (
        partial(apart.in_own_process, benchmark.name, workload.label),
        workload.processes,
    )
    starts = {
        name: partial(start, name, settings, number.get(name, 1)) for name in workload.contestants
    }
    return replace(workload, contestants=starts)


def placed(rows, workload):
    for row in rows:
        row.curve, row.size = workload.points.get(row.peer, (None, None))
    return rows


if __name__ == "__main__":
    sys.exit(main())
