"""Take one training step, the same in every layout."""

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from .layout import Layout
from .order import mixed_seed
from .tokens import IGNORED

Batch = dict[str, Any]  # tensors, and the largest lengths as numbers


@dataclass(frozen=True)
class Settings:
    """Settings of a training.

    `rows_per_step` are those of all processes together. A process computes its share of them in
    batches of `batch_size` rows, and accumulates their gradients.
    """

    steps: int
    rows_per_step: int
    batch_size: int
    learning_rate: float
    warmup_steps: int = 0
    weight_decay: float = 0.1  # of matrices only, not of norms and biases
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
    """Make AdamW with a group for each kind of tensor, as its fused loops require."""
    groups = []
    for parameters in by_kind(p for p in model.parameters() if p.requires_grad):
        for decays in (True, False):
            chosen = [p for p in parameters if (p.dim() > 1) == decays]
            decay = settings.weight_decay if decays else 0.0
            if chosen:
                groups.append({"params": chosen, "weight_decay": decay})
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas)


def by_kind(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Group parameters: plain tensors, and those of each device mesh."""
    kinds: dict[object, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        kinds[getattr(parameter, "device_mesh", None)].append(parameter)
    return list(kinds.values())


def prepare_step(
    optimizer: torch.optim.Optimizer, step: int, layout: Layout, settings: Settings
) -> None:
    """Set the learning rate and the random seed, which follow from the number of the step.

    Processes that compute parts of the same layers draw the same random numbers, because dropout
    has to be the same in values that they share.
    """
    rate = settings.learning_rate * cosine(step, settings.steps, settings.warmup_steps)
    for group in optimizer.param_groups:
        group["lr"] = rate
    torch.manual_seed(mixed_seed(settings.seed, step, layout.data_rank))


def cosine(step: int, steps: int, warmup_steps: int) -> float:
    """Return the share of the learning rate at a step: linear warmup, then cosine decay to 0."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    return (1 + math.cos(math.pi * (step - warmup_steps) / max(1, steps - warmup_steps))) / 2


def add_gradients(
    model: nn.Module, parts: list[Batch], layout: Layout, settings: Settings
) -> torch.Tensor:
    """Accumulate the gradients of a step, and return this process's part of its loss.

    Each part divides its loss by the number of labels of the whole step, on all processes.
    Gradients are averaged over the data parallel groups, so the loss is multiplied by their number.
    """
    labels = torch.stack([count_labels(part["labels"]) for part in parts])
    count = sum_over_data(labels.sum(), layout)
    total = torch.zeros((), device=count.device)
    for number, part in enumerate(parts, 1):
        with synchronising_if(number == len(parts), model):
            with half_precision(count.device, settings):
                loss = model(**part, num_items_in_batch=count, use_cache=False).loss
            (loss * layout.data_size).backward()
        total += loss.detach()
    return total


def count_labels(labels: torch.Tensor) -> torch.Tensor:
    """Count the labels that are predicted, which the first of a row is not."""
    return (labels[:, 1:] != IGNORED).sum()


def synchronising_if(is_last: bool, model: nn.Module) -> AbstractContextManager[None]:
    """Let copies of a model average their gradients only after the last part of a step.

    Shards average after each part, because they would otherwise hold all gradients until then.
    """
    if isinstance(model, DistributedDataParallel) and not is_last:
        return model.no_sync()
    return contextlib.nullcontext()


def half_precision(device: torch.device, settings: Settings) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16)


def sum_over_data(value: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Sum a value in place over the data parallel groups, whose members all hold the same."""
    if layout.data_size > 1:
        dist.all_reduce(value)
        value.div_(layout.tensor, rounding_mode=None if value.is_floating_point() else "floor")
    return value


def clip_gradients(parameters: Iterable[nn.Parameter], largest: float) -> torch.Tensor:
    """Scale all gradients so that their norm is at most `largest`, and return the former norm."""
    kinds = by_kind(p for p in parameters if p.grad is not None)
    norms = [whole(get_total_norm([p.grad for p in k if p.grad is not None])) for k in kinds]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    for kind in kinds:
        clip_grads_with_norm_(kind, largest, norm)
    return norm


def whole(value: torch.Tensor) -> torch.Tensor:
    """Gather a distributed tensor; return any other as it is."""
    return value.full_tensor() if isinstance(value, DTensor) else value
