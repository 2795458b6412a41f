"""Groups of processes that are forked from one that has imported everything."""

import os
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
import transformers
from packaging.version import Version
from torch.multiprocessing.spawn import start_processes

# Before, a layout of two sizes is unknown, and the parts of a table have to be equal.
is_new = Version(transformers.__version__) >= Version("5.23")
new_layouts = pytest.mark.skipif(not is_new, reason="these are the layouts of transformers 5.23")

NEEDED = ["hf_tformer", "torch.distributed.fsdp", "torch.distributed.pipelining"]


def run_in_processes(count, function, *arguments):
    """`function(*arguments)` in each of `count` processes that can speak to each other.

    An error in any of them is an error here. Start once for many cases.
    """
    torch.multiprocessing.get_context("forkserver").set_forkserver_preload(NEEDED)
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        start_processes(
            enter, (count, meeting, function, arguments), nprocs=count, start_method="forkserver"
        )


def enter(rank, count, meeting, function, arguments):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=count)
    try:
        function(*arguments)
        dist.barrier()
    finally:
        dist.destroy_process_group()
