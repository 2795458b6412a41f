"""Train a model on one process or many, with the same steps, on plain torch.distributed.

The rows, the learning rate and the random numbers of a step follow from its number. To resume, a
run therefore needs the weights, the state of the optimizer and that number. Its losses are those
of a run that was never interrupted, on any number of processes.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import torch
from torch.utils.data import DataLoader, Dataset, default_collate
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from .checkpoints import CheckpointWriter, load_checkpoint
from .errors import TrainingError
from .layout import Layout
from .meter import Meter
from .order import RowOrder
from .step import (
    Batch,
    Settings,
    add_gradients,
    clip_gradients,
    count_labels,
    half_precision,
    make_optimizer,
    prepare_step,
    sum_over_data,
)
from .tokens import IGNORED, Row, collate_rows

Rows = Sequence[Row]
Report = Callable[[int, dict[str, float]], None]


def train(
    model: PreTrainedModel,
    training: Rows,
    validation: Rows,
    layout: Layout,
    settings: Settings,
    folder: Path,
    report: Report,
    meter: Meter,
    checkpoint: Path | None = None,
) -> float:
    """Train a model that `layout.open` returned, and save checkpoints in `folder`.

    All processes call it, and it calls `report(steps done, figures)` in each of them. It returns
    the validation loss.
    """
    run = {"rows": len(training), "rows_per_step": settings.rows_per_step, "seed": settings.seed}
    order = RowOrder(**run)
    optimizer = make_optimizer(model, settings)
    first = resume(checkpoint, model, optimizer, run) if checkpoint else 0
    called = layout.wrap(model.train())
    began = time.perf_counter()
    meter.skip()
    with CheckpointWriter(folder, settings.keep, settings.saves_in_background) as writer:
        for step, parts in own_rows(training, order, layout, settings, first, model.device):
            prepare_step(optimizer, step, layout, settings)
            loss = add_gradients(called, parts, layout, settings)
            norm = clip_gradients(model.parameters(), settings.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
            done = step + 1
            is_logged = done % settings.log_steps == 0
            figures = step_figures(loss, norm, optimizer, layout) if is_logged else {}
            meter.tick(settings.rows_per_step * parts[0]["input_ids"].shape[1])
            if is_logged:
                report(done, {**figures, **meter.read(), "seconds": time.perf_counter() - began})
            if done % settings.save_steps == 0 or done == settings.steps:
                writer.save(done, model, optimizer, {"step": done, **run})
                if done < settings.steps:
                    report(done, {"eval_loss": evaluate(model, validation, layout, settings)})
                meter.skip()
        eval_loss = evaluate(model, validation, layout, settings)
        report(max(first, settings.steps), {"eval_loss": eval_loss})
    return eval_loss


def step_figures(
    loss: torch.Tensor, norm: torch.Tensor, optimizer: torch.optim.Optimizer, layout: Layout
) -> dict[str, float]:
    return {
        "loss": sum_over_data(loss, layout).item(),
        "grad_norm": norm.item(),
        "learning_rate": optimizer.param_groups[0]["lr"],
    }


def resume(
    checkpoint: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, run: dict[str, int]
) -> int:
    """Load a checkpoint and return the next step; refuse a run whose steps take other rows."""
    progress = load_checkpoint(checkpoint, model, optimizer)
    for name, value in run.items():
        if progress[name] != value:
            raise TrainingError(
                f"the run of {checkpoint} has {name} {progress[name]}, and this one {value}: "
                "resume with the same tokens, rows per step and seed"
            )
    return int(progress["step"])


def own_rows(
    rows: Rows,
    order: RowOrder,
    layout: Layout,
    settings: Settings,
    first: int,
    device: torch.device,
) -> Iterator[tuple[int, list[Batch]]]:
    """Yield each step from `first` on, with the batches of this process."""
    size = rows_of_each(settings.rows_per_step, layout)
    mine = slice(layout.data_rank * size, (layout.data_rank + 1) * size)
    steps = range(first, settings.steps)
    loader: DataLoader[Batch] = DataLoader(
        cast("Dataset[Row]", rows),
        batch_sampler=(order.step(step)[mine] for step in steps),
        collate_fn=functools.partial(collate_parts, settings.batch_size),
        num_workers=settings.workers,
        pin_memory=device.type == "cuda",
    )
    for step, parts in zip(steps, loader, strict=True):
        yield step, [to_device(part, device) for part in parts]


def collate_parts(size: int, rows: list[Row]) -> list[Batch]:
    """Collate rows to batches of at most `size`."""
    return [collate(rows[start : start + size]) for start in range(0, len(rows), size)]


def collate(rows: list[Row]) -> Batch:
    return collate_rows(rows) if "position_ids" in rows[0] else default_collate(rows)


def rows_of_each(rows_per_step: int, layout: Layout) -> int:
    """Return how many rows of a step each data parallel group takes."""
    rows, rest = divmod(rows_per_step, layout.data_size)
    if rest:
        raise TrainingError(
            f"a step takes {rows_per_step} rows, which {layout.data_size} processes with rows of "
            f"their own cannot share evenly: give a multiple of {layout.data_size}"
        )
    return rows


def to_device(batch: Batch, device: torch.device) -> Batch:
    return {
        name: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }


@torch.no_grad()
def evaluate(model: PreTrainedModel, rows: Rows, layout: Layout, settings: Settings) -> float:
    """Return the mean loss over all labels of some rows, which the processes divide."""
    model.eval()
    sums = torch.zeros(2, device=model.device)
    for batch in own_validation_rows(rows, layout, settings):
        batch = to_device(batch, model.device)
        with half_precision(model.device, settings):
            output = model(**batch, num_items_in_batch=1, use_cache=False, return_logits=False)
        sums += torch.stack([output.loss.float(), count_labels(batch["labels"])])
    model.train()
    total, count = sum_over_data(sums, layout).tolist()
    return total / max(count, 1)


def own_validation_rows(rows: Rows, layout: Layout, settings: Settings) -> Iterator[Batch]:
    """Yield equally many batches in each process, because all of them gather shards together.

    The batch of a process for which no rows are left has no labels.
    """
    size = settings.batch_size
    for start in range(0, len(rows), size * layout.data_size):
        own = range(start + layout.data_rank * size, len(rows))[:size]
        batch = collate([rows[number] for number in own or [0]])
        if not own:
            batch["labels"].fill_(IGNORED)
        yield batch


def compile_layers(model: PreTrainedModel) -> None:
    """Compile the layers one by one: they are alike, so one compilation serves all of them."""
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.compile()
