"""The folder that a program writes: made, continued, published."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from program import ProgramError, refusing

from hf_tformer.atomic_folders import MARKS


@contextmanager
def output_folder(folder: Path, resume: bool = False) -> Iterator[None]:
    """Make the folder, and remove it if the program fails before anything is written.

    A folder that holds something already is refused, unless its run is to be continued.
    """
    if not resume and any((folder / mark).exists() for mark in MARKS):
        raise ProgramError(f"{folder} holds a model already: choose another --output")
    if not resume and list(folder.glob("checkpoint-*")):
        raise ProgramError(
            f"{folder} holds an unfinished run: --resume continues it, or choose another --output"
        )
    is_new = not folder.exists()
    refuse_unwritable(folder, "--output")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):  # it holds something, or another process removed it
                folder.rmdir()
        raise


def refuse_unwritable(folder: Path, flag: str) -> None:
    """Refuse before hours of training; the parent counts where the folder is yet to be made."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise ProgramError(
            f"{folder} cannot be written to ({error.strerror}): choose another {flag}"
        ) from error


def no_checkpoint(folder: Path) -> ProgramError:
    return ProgramError(f"{folder} has no complete checkpoint to resume from: leave --resume out")


def publish_folder(folder: Path, repo_id: str) -> None:
    """Publish a folder, and print its address."""
    from hf_tformer.publishing import PublishError, publish

    with refusing(PublishError):
        print(publish(folder, repo_id).url)
