"""What one run adds to the memory of a process, once its weights are there."""

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .measure import Settings

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # makes Linux forget the highest resident size so far
# glibc returns large blocks when they are freed, but raises what it calls large as it goes. What it
# keeps then is luck: the same step took from 55 to 71 MiB. Naming its default keeps it fixed.
STEADY = {"MALLOC_MMAP_THRESHOLD_": str(128 * 2**10)}
MIB = 2**20


def peak_growth(call: Callable[[], Any], settings: Settings) -> int:
    """Return the bytes by which the peak exceeds what was held before."""
    gc.collect()
    if settings.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    # Freed memory that the allocator kept would be used again, and its use go unseen.
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR_REFS.write_text(RESET_PEAK)
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def resident(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def read_code(settings: Settings) -> None:
    """Run a tiny training step: code that is read for the first time is not what a run needs."""
    states = torch.ones(8, 8, device=settings.device, dtype=settings.torch_dtype)
    scores = states.requires_grad_() @ states.t()
    labels = torch.arange(8).to(scores.device)
    torch.nn.functional.cross_entropy(scores.softmax(-1), labels).backward()
