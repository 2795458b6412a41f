"""What one step of a training does to a model, alike in every layout."""

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from .layout import Layout
from .order import mixed_seed
from .tokens import IGNORED

Batch = dict[str, torch.Tensor | int]


@dataclass(frozen=True)
class Settings:
    """`rows_per_step` are those of all processes together. Of its share of them a process takes
    `batch_size` at once, and adds the gradients up."""

    steps: int
    rows_per_step: int
    batch_size: int
    learning_rate: float
    warmup_steps: int = 0
    weight_decay: float = 0.1  # of matrices; norms and biases have none
    betas: tuple[float, float] = (0.9, 0.95)
    max_grad_norm: float = 1.0
    seed: int = 0
    bf16: bool = False
    workers: int = 0
    log_steps: int = 25
    save_steps: int = 200
    keep: int = 2
    saves_in_background: bool = False


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """AdamW. Its fused loops take tensors of one kind, so each kind is a group."""
    groups = []
    for parameters in of_one_kind(p for p in model.parameters() if p.requires_grad):
        for decays in (True, False):
            chosen = [p for p in parameters if (p.dim() > 1) == decays]
            decay = settings.weight_decay if decays else 0.0
            if chosen:
                groups.append({"params": chosen, "weight_decay": decay})
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas)


def of_one_kind(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Plain tensors, and those that lie on one mesh of processes, each apart."""
    kinds = defaultdict(list)
    for parameter in parameters:
        kinds[getattr(parameter, "device_mesh", None)].append(parameter)
    return list(kinds.values())


def prepare_step(
    optimizer: torch.optim.Optimizer, step: int, layout: Layout, settings: Settings
) -> None:
    """Sets what follows from the number of the step: the learning rate and the random numbers.

    Processes that compute parts of one layer draw the same numbers, because they drop the same
    numbers of what they share.
    """
    rate = settings.learning_rate * cosine(step, settings.steps, settings.warmup_steps)
    for group in optimizer.param_groups:
        group["lr"] = rate
    torch.manual_seed(mixed_seed(settings.seed, step, layout.data_rank))


def cosine(step: int, steps: int, warmup_steps: int) -> float:
    """The share of the learning rate at a step: up in a line, then down to 0 in half a wave."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    return (1 + math.cos(math.pi * (step - warmup_steps) / max(1, steps - warmup_steps))) / 2


def add_gradients(
    model: nn.Module, parts: list[Batch], layout: Layout, settings: Settings
) -> torch.Tensor:
    """Adds the gradients of the step's loss, and returns this process's part of that loss.

    The parts are what this process takes one after the other. Each is divided by the labels of the
    whole step, on all processes. Gradients are averaged over the data, so the loss is taken
    `data_size` times.
    """
    count = sum_over_data(sum(count_labels(part["labels"]) for part in parts), layout)
    total = torch.zeros((), device=count.device)
    for number, part in enumerate(parts, 1):
        with sent_only_if(number == len(parts), model):
            with half_precision(count.device, settings):
                loss = model(**part, num_items_in_batch=count, use_cache=False).loss
            (loss * layout.data_size).backward()
        total += loss.detach()
    return total


def count_labels(labels: torch.Tensor) -> torch.Tensor:
    """How many tokens are predicted; nothing stands before the first of a row."""
    return (labels[:, 1:] != IGNORED).sum()


def sent_only_if(is_last: bool, model: nn.Module) -> contextlib.AbstractContextManager:
    """Copies of a model wait for the last part before they average. Shards do not: they would hold
    the gradients of the whole model meanwhile."""
    waits = isinstance(model, DistributedDataParallel) and not is_last
    return model.no_sync() if waits else contextlib.nullcontext()


def half_precision(device: torch.device, settings: Settings) -> contextlib.AbstractContextManager:
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16)


def sum_over_data(value: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Sums up in place over what sees different rows; parts of one layer hold the same value."""
    if layout.data_size > 1:
        dist.all_reduce(value)
        value.div_(layout.tensor, rounding_mode=None if value.is_floating_point() else "floor")
    return value


def clip_gradients(parameters: Iterable[nn.Parameter], largest: float) -> torch.Tensor:
    """Scales all gradients so that their norm is at most `largest`, and returns what it was."""
    kinds = of_one_kind(p for p in parameters if p.grad is not None)
    norms = [whole(get_total_norm([p.grad for p in kind])) for kind in kinds]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    for kind in kinds:
        clip_grads_with_norm_(kind, largest, norm)
    return norm


def whole(value: torch.Tensor) -> torch.Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value
