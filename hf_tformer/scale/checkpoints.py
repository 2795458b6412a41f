"""Save and load checkpoints of a run on any number of processes, in any layout.

A checkpoint is a folder `checkpoint-STEP` that is complete or absent. torch's DCP writes it as
`checkpoint-STEP.partial`; when all processes are done and everything is on the disk, the first one
renames it. Every process calls each of these functions, and an error in one is raised in all.
"""

import json
import warnings
from collections.abc import Container, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from .checkpoint_folders import CheckpointError, Unfinished, newest_first, why, without_warning
from .state import State, copied, in_plain_shards, in_shards_of, put_state, state_of
from .together import first_alone, joined_count, joined_rank, together
from .whole_files import fault_of, read_mark


def save_checkpoint(
    folder: str | Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    progress: dict[str, object] | None = None,
    keep: int = 3,
) -> None:
    """Save `folder/checkpoint-STEP`, and keep only the newest `keep` checkpoints.

    `progress` is other state of the run that JSON can hold, such as that of its scheduler. Only
    the `progress` of the first process is saved.
    """
    with CheckpointWriter(folder, keep) as writer:
        writer.save(step, model, optimizer, progress)


def last_checkpoint(folder: str | Path) -> Path | None:
    """Return the newest complete checkpoint in `folder`, or None; warn of damaged ones."""
    for path in first_alone(lambda: newest_first(Path(folder))):
        if fault := fault_found_together(path):
            if joined_rank() == 0:
                warnings.warn(f"{path} is damaged and not used: {fault}", stacklevel=2)
        else:
            return path
    return None


def load_checkpoint(
    checkpoint: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> dict[str, Any]:
    """Load a checkpoint into a model and its optimizer, and return the `progress` it holds.

    DCP reads pickles: load checkpoints of your own runs only.
    """
    checkpoint = Path(checkpoint)
    if fault := fault_found_together(checkpoint):
        raise CheckpointError(f"{checkpoint} cannot be read ({fault}): give another checkpoint")
    state = state_of(model, optimizer)
    plain = in_plain_shards(state)
    saved = dcp.FileSystemReader(checkpoint).read_metadata().state_dict_metadata
    refuse_other_names(checkpoint, plain["model"], saved)
    untouched = remove_unsaved(plain, saved)
    try:
        with without_warning():
            dcp.load(plain, checkpoint_id=checkpoint)
    except dcp.CheckpointException as error:
        raise CheckpointError(f"{checkpoint} cannot be read: {why(error)}") from error
    plain.get("optimizer", {}).update(untouched)
    put_state(in_shards_of(plain, state), model, optimizer)
    return read_mark(checkpoint)["progress"]


def fault_found_together(checkpoint: Path) -> str | None:
    """Return what is damaged, or None; each process verifies its share of the files."""
    part, parts = joined_rank(), joined_count()
    return next(filter(None, together(lambda: fault_of(checkpoint, part, parts))), None)


def refuse_other_names(checkpoint: Path, weights: Iterable[str], saved: Iterable[str]) -> None:
    """Refuse a checkpoint of another model: DCP ignores weights that the model lacks."""
    ours = {f"model.{name}" for name in weights}
    theirs = {name for name in saved if name.startswith("model.")}
    if other := sorted(ours ^ theirs):
        holder = "the model" if other[0] in ours else "the checkpoint"
        raise CheckpointError(
            f"{checkpoint} is of another model (only {holder} has {other[0].removeprefix('model.')}"
            "): open the model by the configuration that the run began with"
        )


def remove_unsaved(state: State, saved: Container[str]) -> dict[str, torch.Tensor]:
    """Remove optimizer state that the checkpoint lacks, and return it as zeros.

    A parameter has no state before its first gradient.
    """
    optimizer = state.get("optimizer", {})
    names = [n for n in optimizer if n.startswith("state.") and f"optimizer.{n}" not in saved]
    return {name: optimizer.pop(name).zero_() for name in names}


class CheckpointWriter:
    """Saves the checkpoints of one run: `with CheckpointWriter(folder) as w: w.save(...)`.

    With `in_background`, the run continues as soon as its state is copied to the memory of the
    processor. The next `save`, `wait` and the end of the block wait until the checkpoint is
    written, and raise its error.
    """

    def __init__(self, folder: str | Path, keep: int = 3, in_background: bool = False) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}: keep 1 checkpoint or more")
        self.folder, self.keep = Path(folder), keep
        self.thread = ThreadPoolExecutor(max_workers=1) if in_background else None
        self.saving: Future[None] | None = None
        # A group of its own: its messages do not mix with those of the model's computation.
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
            warnings.warn(str(failure), stacklevel=2)  # the error that ended the block is raised
        finally:
            self.close()

    def close(self) -> None:
        if self.thread is not None:
            self.thread.shutdown()
        if self.group is not None:
            dist.destroy_process_group(self.group)

    def wait(self) -> None:
        """Wait for the checkpoint that is being written, and raise its error if it failed."""
        saving, self.saving = self.saving, None
        if saving is not None:
            saving.result()

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        progress: dict[str, object] | None = None,
    ) -> None:
        """Save the checkpoint of a step; see `save_checkpoint`."""
        self.wait()
        try:
            json.dumps(progress)
        except TypeError as error:
            raise ValueError(
                f"progress holds what JSON cannot ({error}): give numbers, strings, lists and "
                "dictionaries"
            ) from error
        unfinished = Unfinished(self.folder, step, progress or {}, self.keep, self.group)
        unfinished.make()
        state = in_plain_shards(state_of(model, optimizer))
        if self.thread is None:
            unfinished.finish(state)
        else:
            self.saving = self.thread.submit(unfinished.finish, copied(state))
