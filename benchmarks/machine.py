"""What the machine is, and what it can do at best, measured in the same run."""

import os
import platform
import re
import time
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch.nn import functional

PACKAGES = ("torch", "transformers", "ctranslate2", "litgpt", "x-transformers")
PACKAGES += ("onnxruntime", "openvino", "xllamacpp", "bertviz")


def describe(settings):
    """For the head of a table. No host names: they say nothing to a reader."""
    return {
        "date": date.today().isoformat(),
        "device": settings.device,
        "machine": device_name(settings),
        "threads": torch.get_num_threads(),
        "dtype": settings.dtype,
        "rounds": settings.rounds,
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in PACKAGES if installed(name)},
    }


def device_name(settings):
    if settings.device == "cuda":
        return torch.cuda.get_device_name()
    cpu_info = Path("/proc/cpuinfo")
    named = cpu_info.is_file() and re.search(r"model name\s*: (.+)", cpu_info.read_text())
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{named[1] if named else platform.machine()}, {os.cpu_count()} cores, {capability}"


def installed(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Limits:
    """Floating point operations and bytes in a second, at best."""

    flops: float
    bytes: float

    def share(self, work, seconds):
        """The fraction of the limit that a run reached, and of which; (None, None) if unknown."""
        for kind, amount in work.items():
            return amount / seconds / getattr(self, kind), LIMIT_NAMES[kind]
        return None, None


LIMIT_NAMES = {"flops": "matrix product", "bytes": "read bandwidth"}


def measure_limits(settings):
    """The best of a few tries: a limit is what the machine can do, not what it usually does."""
    rows, width, megabytes = settings.pick((1024, 2048, 512), (64, 64, 8))
    options = {"device": settings.device, "dtype": settings.torch_dtype}
    left, right = torch.randn(rows, width, **options), torch.randn(width, width, **options)
    flops = 2 * rows * width * width
    wide = torch.randn(megabytes * 2**20 // (4096 * right.element_size()), 4096, **options)
    one = torch.randn(1, 4096, **options)
    reads = (lambda: functional.linear(one, wide), wide.sum)
    return Limits(
        flops=flops / best(lambda: functional.linear(left, right), settings),
        bytes=wide.nbytes / min(best(read, settings) for read in reads),
    )


def best(call, settings, tries=10):
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        call()
        if settings.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)
