"""`make fuzz`: as many cases as asked for, every fault with a program that repeats it.

make fuzz MINUTES=10
make fuzz CASES=10000 SEED=7 PROMISE=fast_text
"""

import argparse
import itertools
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch

from .promises import PROMISES
from .running import Faults, run

ROUND = 50  # cases of one promise before the next has its turn


def main():
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, help="how long (10, where no cases are given)")
    parser.add_argument("--cases", type=int, help="how many, of all promises together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--promise", choices=PROMISES, action="append", help="only this one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = arguments.promise or list(PROMISES)
    faults, counts, seconds = Faults(), dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    try:
        try_all(arguments, faults, counts, seconds)
    except KeyboardInterrupt:
        print("interrupted")
    report(faults, counts, seconds, arguments.seed)
    return 1 if faults.found else 0


def try_all(arguments, faults, counts, seconds):
    """Some cases of each promise, then others of each, until the time or the cases are used up."""
    end, wanted = deadline(arguments), arguments.cases or float("inf")
    each = max(1, min(ROUND, wanted // len(counts)))
    for number in itertools.count():
        for name in counts:
            left = wanted - sum(counts.values())
            if left <= 0 or time.monotonic() >= end:
                return
            start = time.monotonic()
            counts[name] += run(
                name, int(min(each, left)), arguments.seed * 1_000_003 + number, faults
            )
            seconds[name] += time.monotonic() - start


def deadline(arguments):
    minutes = arguments.minutes or (None if arguments.cases else 10)
    return float("inf") if minutes is None else time.monotonic() + 60 * minutes


def report(faults, counts, seconds, seed):
    print(f"\nseed {seed}: {sum(counts.values())} cases, {len(faults.found)} faults")
    for name, count in counts.items():
        each = 60 * count / seconds[name] if seconds[name] else 0
        print(f"{name:16} {count:7} cases, {each:6.0f} a minute, {faults.of(name)} faults")


if __name__ == "__main__":
    sys.exit(main())
