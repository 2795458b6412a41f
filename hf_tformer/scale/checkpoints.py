"""Checkpoints of a run on any number of processes, in any layout, read in any other.

A checkpoint is a folder `checkpoint-STEP` that is whole or not there. torch's DCP writes it beside,
as `checkpoint-STEP.partial`; when all processes are done and everything is on the disk, the first
one renames it. Every process calls each of these functions, and an error in one is raised in all.
"""

import json
import warnings
from collections.abc import Container, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from .checkpoint_folders import CheckpointError, Unfinished, newest_first, why, without_remark
from .state import State, copied, in_plain_shards, in_shards_of, put_state, state_of
from .together import first_alone, joined_count, joined_rank, together
from .whole_files import fault_of, read_mark


def save_checkpoint(
    folder: str | Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    progress: dict | None = None,
    keep: int = 3,
) -> None:
    """Saves `folder/checkpoint-STEP`, and keeps the newest ones only, `keep` in number.

    `progress` is what else a run has to know, such as the state of its scheduler: numbers, texts,
    lists and dictionaries by text. Of several processes, that of the first is saved.
    """
    with CheckpointWriter(folder, keep) as writer:
        writer.save(step, model, optimizer, progress)


def last_checkpoint(folder: str | Path) -> Path | None:
    """The newest checkpoint in `folder` that is whole, or None; a damaged one is warned of."""
    for path in first_alone(lambda: newest_first(Path(folder))):
        if fault := fault_found_together(path):
            if joined_rank() == 0:
                warnings.warn(f"{path} is damaged and left aside: {fault}", stacklevel=2)
        else:
            return path
    return None


def load_checkpoint(
    checkpoint: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> dict:
    """Reads a checkpoint into a model and its optimizer, and gives back the `progress` it holds.

    DCP reads pickles: load checkpoints of your own runs only.
    """
    checkpoint = Path(checkpoint)
    if fault := fault_found_together(checkpoint):
        raise CheckpointError(f"{checkpoint} cannot be read ({fault}): give another checkpoint")
    state = state_of(model, optimizer)
    plain = in_plain_shards(state)
    saved = dcp.FileSystemReader(checkpoint).read_metadata().state_dict_metadata
    refuse_other_names(checkpoint, plain["model"], saved)
    untouched = take_out_untouched(plain, saved)
    try:
        with without_remark():
            dcp.load(plain, checkpoint_id=checkpoint)
    except dcp.CheckpointException as error:
        raise CheckpointError(f"{checkpoint} cannot be read: {why(error)}") from error
    plain.get("optimizer", {}).update(untouched)
    put_state(in_shards_of(plain, state), model, optimizer)
    return read_mark(checkpoint)["progress"]


def fault_found_together(checkpoint: Path) -> str | None:
    """What is damaged; each process reads its part of the files."""
    part, parts = joined_rank(), joined_count()
    return next(filter(None, together(lambda: fault_of(checkpoint, part, parts))), None)


def refuse_other_names(checkpoint: Path, weights: dict, saved: Iterable[str]) -> None:
    """DCP would leave aside in silence what the checkpoint holds and the model lacks."""
    ours = {f"model.{name}" for name in weights}
    theirs = {name for name in saved if name.startswith("model.")}
    if other := sorted(ours ^ theirs):
        holder = "the model" if other[0] in ours else "the checkpoint"
        raise CheckpointError(
            f"{checkpoint} is of another model (only {holder} has {other[0].removeprefix('model.')}"
            "): open the model by the configuration that the run began with"
        )


def take_out_untouched(state: State, saved: Container[str]) -> dict[str, torch.Tensor]:
    """What the optimizer had not begun to count when it was saved, at nought; not to be read.

    A parameter has no state before its first gradient.
    """
    optimizer = state.get("optimizer", {})
    names = [n for n in optimizer if n.startswith("state.") and f"optimizer.{n}" not in saved]
    return {name: optimizer.pop(name).zero_() for name in names}


class CheckpointWriter:
    """Saves the checkpoints of one run: `with CheckpointWriter(folder) as w: w.save(...)`.

    In the background, the run goes on as soon as its state is copied to the memory of the
    processor. The next `save`, `wait` and the end of the block wait for what is still being
    written, and raise what went wrong meanwhile.
    """

    def __init__(self, folder: str | Path, keep: int = 3, in_background: bool = False) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}: keep 1 checkpoint or more")
        self.folder, self.keep = Path(folder), keep
        self.thread = ThreadPoolExecutor(max_workers=1) if in_background else None
        self.saving: Future | None = None
        # What is written meanwhile is agreed on apart from what the model computes.
        has_own_group = in_background and dist.is_initialized()
        self.group = dist.new_group(backend="gloo") if has_own_group else None

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        try:
            self.wait()
        except CheckpointError as failure:
            if error is None:
                raise
            warnings.warn(str(failure), stacklevel=2)  # what ended the block is raised
        finally:
            self.close()

    def close(self) -> None:
        if self.thread is not None:
            self.thread.shutdown()
        if self.group is not None:
            dist.destroy_process_group(self.group)

    def wait(self) -> None:
        """Waits for the checkpoint that is being written, and raises what it failed by."""
        saving, self.saving = self.saving, None
        if saving is not None:
            saving.result()

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        progress: dict | None = None,
    ) -> None:
        """Saves the checkpoint of a step; see `save_checkpoint`."""
        self.wait()
        try:
            json.dumps(progress)
        except TypeError as error:
            raise ValueError(
                f"progress holds what JSON cannot ({error}): give numbers, texts, lists and "
                "dictionaries of them"
            ) from error
        unfinished = Unfinished(self.folder, step, progress or {}, self.keep, self.group)
        unfinished.make()
        state = in_plain_shards(state_of(model, optimizer))
        if self.thread is None:
            unfinished.finish(state)
        else:
            self.saving = self.thread.submit(unfinished.finish, copied(state))
