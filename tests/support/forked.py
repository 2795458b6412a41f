"""Groups of processes for a program that has imported everything: forked, and joined by gloo."""

import os
import signal
import tempfile
import traceback
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

LIMIT = timedelta(minutes=10)  # who waits longer has lost somebody


def in_processes(count, work, *arguments):
    """Calls `work(*arguments)` in each of so many new processes; all have to end well."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [start(rank, count, Path(folder), work, arguments) for rank in range(count)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    assert not any(codes), f"{work.__name__} in {count} processes: they ended by {codes}"


def start(rank, count, folder, work, arguments):
    if process := os.fork():
        return process
    status = 1
    try:
        signal.alarm(3600)
        with joined(rank, count, folder):
            work(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


@contextmanager
def joined(rank, count, folder):
    """The environment of a launcher, and a group where there are several."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ.update({name: str(number) for name, number in numbers.items()})
    if count > 1:
        store = dist.FileStore(str(folder / "store"), count)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=LIMIT)
    yield
    if count > 1:
        dist.barrier()
        dist.destroy_process_group()
