"""What the machine is, and what it can do at best, measured in the same run."""

import os
import platform
import re
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from hf_tformer.fast.choices import CHOICES

from .measure import Limits, Settings, clock

PACKAGES = ("torch", "transformers", "ctranslate2", "litgpt", "x-transformers")
PACKAGES += ("onnxruntime", "openvino", "xllamacpp")


def describe(settings: Settings) -> dict[str, Any]:
    """Return what the head of a table shows. No host names: they mean nothing to a reader."""
    installed = {package.name: package.version for package in distributions()}
    return {
        "date": date.today().isoformat(),
        "machine": processor(),
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "rounds": settings.rounds,
        "python": platform.python_version(),
        "versions": {name: installed[name] for name in PACKAGES if name in installed},
    }


def processor() -> str:
    cpu_info = Path("/proc/cpuinfo")
    named = cpu_info.is_file() and re.search(r"model name\s*: (.+)", cpu_info.read_text())
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{named[1] if named else platform.machine()}, {os.cpu_count()} cores, {capability}"


def products() -> Iterator[str]:
    """Yield which function multiplies each shape of weight and number of tokens fastest here."""
    for (rows, columns, _, tokens, threads, _), name in CHOICES.items():
        yield f"{rows} × {columns} with {tokens} tokens and {threads} threads: {name}"


def measure_limits(settings: Settings) -> Limits:
    rows, width, megabytes = settings.pick((1024, 2048, 512), (64, 64, 8))
    left, right = torch.randn(rows, width), torch.randn(width, width)
    wide, one = torch.randn(megabytes * 2**20 // (4096 * 4), 4096), torch.randn(1, 4096)
    product = best(lambda: functional.linear(left, right))
    read = min(best(lambda: functional.linear(one, wide)), best(wide.sum))
    return Limits(flops=2 * rows * width * width / product, bytes=wide.nbytes / read)


def best(call: Callable[[], Any]) -> float:
    """Return the least seconds of ten tries: a limit is what the machine can do, not the usual."""
    return min(clock(call) for _ in range(10))
