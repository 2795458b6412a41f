"""Training steps of two processes, beside one with their threads and beside Llama in their layout.

A step takes the same sequences in all of them: forward, backward, the exchange of gradients, and
the optimizer. Both models are opened by transformers in the layout; only DDP is torch's.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import DistributedConfig, PreTrainedModel

from hf_tformer.scale.step import whole

from .decoding import llama_pair, prompt
from .measure import OURS, Run, Settings, Workload, Workloads

ALONE = f"{OURS}, one process of two threads"
LAYOUTS = {"DDP": DistributedConfig(), "FSDP2": DistributedConfig(fsdp_size=2)}


def scale(settings: Settings) -> Workloads:
    """Train on two processes, each with half of the batch; the first is measured."""
    rows, length = settings.pick((8, 256), (2, 12))
    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8}
    changes = settings.pick({**sizes, "num_hidden_layers": 8, "vocab_size": 16000}, {})
    pair = llama_pair(settings, 19, **changes)
    ids = prompt(pair, rows, length)["input_ids"]
    for name, layout in LAYOUTS.items():
        yield Workload(
            f"{name} on 2 processes, {rows} × {length} tokens",
            {
                **pair.contestants(step, layout, ids),
                ALONE: pair.contestant("ours", step, None, ids),
            },
            {pair.name: 1.0},
            apart=True,
            processes={OURS: 2, pair.name: 2},
        )


def step(model: PreTrainedModel, layout: DistributedConfig | None, ids: torch.Tensor) -> Run:
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if processes > 1:
        model = laid_out(model, layout)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    mine = ids[rank::processes]

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        loss = model(input_ids=mine, labels=mine).loss  # of one length: a mean of means
        loss.backward()
        gradients = [p.grad for p in model.parameters()]
        norm = torch.stack([whole(g.norm()) for g in gradients]).norm()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), norm

    def outcome(result: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        loss, norm = result
        if processes > 1:
            dist.all_reduce(loss)
        return {"loss": loss / processes, "norm of all gradients": norm}

    return Run(call, outcome)


def laid_out(model: PreTrainedModel, layout: DistributedConfig) -> torch.nn.Module:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)  # each process its own: later only the first would save
        dist.init_process_group("gloo")
        if layout.fsdp_size == 1:
            return DistributedDataParallel(model)
        return type(model).from_pretrained(folder, distributed_config=layout)
