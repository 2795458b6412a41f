"""What one run adds to the memory of a process, once its weights are there.

Every contestant is weighed in a process of its own: what another one left behind would count too.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from .measure import OURS, Absent, Row, prepare_task, task_of

ROOT = Path(__file__).parent.parent
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # what Linux is to forget: the highest resident size so far
# glibc gives large blocks back when they are freed, but raises what it calls large as it goes. What
# it keeps then is luck: the same step took from 55 to 71 MiB. Naming its default keeps it fixed.
STEADY = {"MALLOC_MMAP_THRESHOLD_": str(128 * 2**10)}
MIB = 2**20


def peak_growth(call, settings):
    """Bytes by which the peak exceeds what was held before."""
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


def resident(field):
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def weigh(benchmark, workload, settings):
    """Rows of memory, in the order of the contestants."""
    found = {
        name: weigh_in_fresh_process(benchmark, workload.label, name, settings)
        for name in workload.contestants
    }
    ours = found[OURS]["bytes"] / MIB
    rows = []
    for name, answer in found.items():
        if "absent" in answer:
            note = f"absent: {answer['absent']}"
            rows.append(Row(workload.label, "MiB", name, note=note))
        elif name == OURS:
            rows.append(Row(workload.label, "MiB", name, ours))
        else:
            theirs, floor = answer["bytes"] / MIB, workload.memory_floors.get(name)
            ratio = theirs / max(ours, 1e-9)
            rows.append(Row(workload.label, "MiB", name, ours, theirs, ratio, floor=floor))
    return rows


def weigh_in_fresh_process(benchmark, label, contestant, settings):
    task = task_of(benchmark, label, contestant, settings)
    command = [sys.executable, "-m", "benchmarks", "--weigh", task]
    environment = os.environ | STEADY
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{label}: {contestant} failed while its memory was measured")
    return json.loads(done.stdout.splitlines()[-1])


def answer(task, benchmarks):
    """The other end: prepares one contestant, runs it once, and says what that took."""
    try:
        run, settings = prepare_task(task, benchmarks)
        read_code(settings)
        return {"bytes": peak_growth(run.call, settings)}
    except Absent as reason:  # some find out only while they run
        return {"absent": str(reason)}


def read_code(settings):
    """A tiny training step: code that is read for the first time is not what a run needs."""
    states = torch.ones(8, 8, device=settings.device, dtype=settings.torch_dtype)
    scores = states.requires_grad_() @ states.t()
    torch.nn.functional.cross_entropy(
        scores.softmax(-1), torch.arange(8).to(scores.device)
    ).backward()
