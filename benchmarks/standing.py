"""Whether figures still stand: what was measured, and whether that code has changed since."""

import subprocess
from functools import cache
from typing import Any

from .machine import processor
from .measure import ROOT
from .registry import BENCHMARKS

MEASURED = ("hf_tformer/model", "hf_tformer/fast")
# Modules of benchmarks that run conversions as well.
CONVERTED = ("files", "runtimes", "assisted", "real", "real_sentences")


def covered(name: str) -> tuple[str, ...]:
    """Return the paths of what a benchmark measures, its own tasks included.

    How peers are made and timed, for all benchmarks alike, is not among them.
    """
    module = BENCHMARKS[name].workloads.__module__.rpartition(".")[2]
    also = {"scale": ["hf_tformer/scale"]} | {room: ["conversion"] for room in CONVERTED}
    return (*MEASURED, *also.get(module, ()), f"benchmarks/{module}.py")


def commit_of(name: str) -> str:
    """Return the commit of the files that a benchmark measures, "" where they differ from it."""
    if git("diff", "--quiet", "HEAD", "--", *covered(name)).returncode:
        return ""
    return git("rev-parse", "--short=8", "HEAD").stdout.strip()


def is_stale(result: dict[str, Any]) -> bool:
    """Return whether what was measured has changed since, or is not known."""
    commit = result["about"].get("commit")
    return not commit or has_changed(commit, result["name"])


@cache  # a page asks several times of each benchmark
def has_changed(commit: str, name: str) -> bool:
    return git("diff", "--quiet", commit, "HEAD", "--", *covered(name)).returncode != 0


def is_from_here(result: dict[str, Any]) -> bool:
    return result["about"]["machine"] == processor()


def git(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
