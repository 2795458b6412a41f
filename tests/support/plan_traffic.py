"""What torch itself sends in a step, in one process that stands for one of many.

    python plan_traffic.py REPLICATE,SHARD,TENSOR,CHECKPOINTED,LOGITS,FAMILY,TIED ...

prints a line of JSON for each case: bytes by collective, and the numbers of the parameters that
the process holds. Under torchrun the group is gloo's, else torch's own fake one, which sends
nothing.
"""

import json
import os
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import logging

sys.path.insert(0, str(Path(__file__).parents[1]))
from hf_tformer.plan.layouts import StagedLayout
from support.families import FAMILIES

KINDS = {
    "_allgather_base_": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "allreduce_": "all-reduce",
    "all_reduce": "all-reduce",
}
ROWS, LENGTH = 2, 10
FAKE_PROCESSES = 8


def sizes(is_tied):
    """A tied table has to be shared evenly."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return {"vocab_size": 104 if is_tied else 101, "tie_word_embeddings": is_tied, **heads}


class SentBytes(TorchDispatchMode):
    """Of each collective the bytes of its larger side."""

    def __init__(self):
        super().__init__()
        self.totals = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        library, _, name = func.name().partition("::")
        if library in ("c10d", "_c10d_functional") and name in KINDS:
            sides = [leaf for leaf in tree_leaves((args, result)) if isinstance(leaf, torch.Tensor)]
            self.totals[KINDS[name]] += max(side.nbytes for side in sides)
        return result


def save_model(case, folder):
    """Before the processes join, for then only the first one would save."""
    *_, name, tied = case.split(",")
    family = next(family for family in FAMILIES if family.name == name)
    family.build(**sizes(tied == "True")).save_pretrained(folder / case)


def run(case, folder):
    replicate, shard, tensor, checkpointed, logits, name, _ = case.split(",")
    layout = StagedLayout(int(replicate), int(shard), int(tensor))
    family = next(family for family in FAMILIES if family.name == name)
    model = layout.open(family.auto, folder / case, torch.device("cpu")).train()
    called = layout.wrap(model)
    if checkpointed == "True":
        model.activation_checkpointing_enable()
    ids = torch.randint(3, 101, (ROWS, LENGTH))
    with SentBytes() as sent:
        called(ids, labels=ids, return_logits=logits == "True").loss.backward()
    held = [getattr(p, "to_local", lambda p=p: p)().numel() for p in model.parameters()]
    return {"case": case, "sent": sent.totals, "numbers": sum(held)}


def main(cases, folder):
    for case in cases:
        save_model(case, folder)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=FAKE_PROCESSES)
    for case in cases:
        answer = run(case, folder)
        if dist.get_rank() == 0:
            print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        main(sys.argv[1:], Path(place))
