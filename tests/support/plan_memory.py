"""How far the resident memory of a process grows in training steps, weights among it.

    python plan_memory.py FOLDER REPLICATE SHARD TENSOR CHECKPOINTED ALL_LOGITS ROWS LENGTH

prints bytes; under torchrun each process does.
"""

import ctypes
import gc
import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.fsdp
from transformers import AutoModelForCausalLM, logging

import hf_tformer
from hf_tformer.plan.layouts import StagedLayout

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"


def resident(field):
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def forget_peak():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR_REFS.write_text(RESET_PEAK)


def train(model, called, rows, length, has_all_logits, steps):
    parameters = list(model.parameters())
    is_plain = not any(hasattr(parameter, "to_local") for parameter in parameters)
    optimizer = torch.optim.AdamW(parameters, foreach=is_plain)  # it takes no mixture
    ids = torch.randint(3, model.config.vocab_size, (rows, length))
    for _ in range(steps):
        called(ids, labels=ids, return_logits=has_all_logits).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main(folder, *options):
    replicate, shard, tensor, is_checkpointed, has_all_logits, rows, length = map(int, options)
    layout = StagedLayout(replicate, shard, tensor)
    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = hf_tformer.TformerDecoderConfig(**sizes)
    small = hf_tformer.TformerDecoderForCausalLM(config).train()
    train(small, small, 1, 8, True, 1)  # code that is read for the first time is not what it needs
    forget_peak()
    before, files = resident("VmRSS"), resident("RssFile")
    model = layout.open(AutoModelForCausalLM, folder, torch.device("cpu")).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1)  # it is read from its file only now
    if is_checkpointed:
        model.activation_checkpointing_enable()
    forget_peak()
    train(model, layout.wrap(model), rows, length, bool(has_all_logits), 3)
    # Pages of the file that weights came from take no memory that is needed.
    read = resident("RssFile") - files
    print("peak", resident("VmHWM") - before - read, flush=True)


if __name__ == "__main__":
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    main(*sys.argv[1:])
    if "RANK" in os.environ:
        dist.destroy_process_group()
