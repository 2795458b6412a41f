"""The folder that a program of this folder writes: made, continued, published."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from program import ProgramError

from hf_tformer.atomic_folders import MARKS

if TYPE_CHECKING:
    from hf_tformer.publishing import Published


@contextmanager
def output_folder(folder: Path, resume: bool = False) -> Iterator[None]:
    """Makes the folder, and removes it if the program fails before anything is written.

    Refuses one that holds something already, unless it is to be continued.
    """
    if not resume and any((folder / mark).exists() for mark in MARKS):
        raise ProgramError(f"{folder} holds a model already: choose another --output")
    if not resume and list(folder.glob("checkpoint-*")):
        raise ProgramError(
            f"{folder} holds an unfinished run: --resume continues it, or choose another --output"
        )
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ProgramError(
            f"{folder} cannot be written to ({error.strerror}): choose another --output"
        ) from error
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):  # it holds something, or another process removed it
                folder.rmdir()
        raise


def checkpoint_to_resume(folder: Path) -> str:
    """The last complete checkpoint of a run that was interrupted."""
    from hf_tformer import last_complete_checkpoint

    checkpoint = last_complete_checkpoint(folder)
    if checkpoint is None:
        raise ProgramError(
            f"{folder} has no complete checkpoint to resume from: leave --resume away"
        )
    return str(checkpoint)


def publish_folder(folder: Path, repo_id: str) -> "Published":
    """`hf_tformer.publish`, with its refusal as a program's."""
    from hf_tformer.publishing import PublishError, publish

    try:
        return publish(folder, repo_id)
    except PublishError as error:
        raise ProgramError(str(error)) from error
