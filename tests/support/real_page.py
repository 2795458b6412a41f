"""docs/REAL.md: what every command showed of released models, its time and its memory."""

import os
import platform
import re
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

HEAD = """# Released models

Written by `make test-real`, never by hand: each row is one command on released weights, in a
process of its own, on {cores} cores of {machine}, {day}, with {versions}.
Memory is the peak of the largest process with all that it imports, which is some 400 MiB for torch
and transformers alone, and with the file of weights, whose pages the system takes back at need.

| model | what was done | what it showed | time | memory |
|---|---|---|---|---|
"""


class Row(NamedTuple):
    model: str
    done: str
    showed: str
    seconds: float
    mebibytes: float


def processor():
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"model name\s*:\s*(.*)", text)
    return f"an {found[1]}" if found else platform.machine()


def page(rows):
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    head = HEAD.format(
        cores=os.cpu_count(), machine=processor(), day=date.today(), versions=versions
    )
    lines = (
        f"| {row.model} | {row.done} | {row.showed} | {row.seconds:.0f} s "
        f"| {row.mebibytes:,.0f} MiB |\n"
        for row in rows
    )
    return head + "".join(lines)
