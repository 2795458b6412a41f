"""The folder that a conversion writes: where it may lie, and how it appears whole or not at all."""

import contextlib
import errno
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm.auto import tqdm

from hf_tformer.atomic_folders import remove_rests, undone_by_signals, unfinished_folder

from .aliases import FilePath
from .errors import ConversionError

FULL = (errno.ENOSPC, errno.EDQUOT)
PARTIAL = re.compile(r"\..+-[0-9a-f]{8}\.partial")


@contextlib.contextmanager
def appearing(folder: FilePath, source: FilePath, needed: int) -> Iterator[Path]:
    """Provide a folder beside `folder` to write into, which takes its name if nothing fails.

    `needed` is the size of the weights in bytes. After a failure, parent folders that were made are
    removed as well.
    """
    folder = Path(folder).absolute()
    refuse_place(folder, source)
    above = existing_parent(folder)
    remove_rests(folder.parent, PARTIAL)  # which may be what fills the disk
    refuse_too_little_room(above, needed)
    made = [parent for parent in folder.parents if not parent.exists()]
    partial = None

    def remove_made() -> None:
        for parent in made:
            with contextlib.suppress(OSError):  # not empty: someone else writes there
                parent.rmdir()

    try:
        with undone_by_signals(remove_made):
            folder.parent.mkdir(parents=True, exist_ok=True)
            names = f".{folder.name}-", ".partial", PARTIAL
            with unfinished_folder(folder.parent, *names) as partial:
                yield partial
                partial.replace(folder)
    except BaseException as error:
        remove_made()
        if isinstance(error, OSError) and is_about(error, (partial or folder.parent, *made)):
            raise ConversionError(sentence(error, folder, above, needed)) from error
        raise


def refuse_place(folder: Path, source: FilePath) -> None:
    source, place = Path(source).resolve(), folder.resolve()
    if place == source:
        raise ConversionError(f"{folder} is the source of the conversion: choose another name")
    if place.is_relative_to(source):
        raise ConversionError(f"{folder} lies inside {source}: choose a place outside of it")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConversionError(f"{folder} exists: choose another name, or remove it first")


def existing_parent(folder: Path) -> Path:
    above = next(parent for parent in folder.parents if parent.exists())
    if not above.is_dir():
        raise ConversionError(f"{above} is a file: choose a place for {folder.name} in a folder")
    return above


def refuse_too_little_room(above: Path, needed: int) -> None:
    free = shutil.disk_usage(above).free
    if free < needed:
        raise ConversionError(
            f"{above} has room for {in_words(free)}, but the weights need {in_words(needed)}: "
            "free some, or choose a place on another disk"
        )


def is_about(error: OSError, places: Iterable[Path]) -> bool:
    """Return whether writing failed; errors of reading have sentences of their own."""
    if error.errno in FULL or error.filename is None:
        return error.errno in FULL
    return any(Path(error.filename).is_relative_to(place) for place in places)


def sentence(error: OSError, folder: Path, above: Path, needed: int) -> str:
    if error.errno in FULL:
        return (
            f"the disk was full before all of {folder} was written, whose weights need "
            f"{in_words(needed)}: free some, or choose a place on another disk"
        )
    return (
        f"{folder} could not be written ({error.strerror}): choose another place, or get the "
        f"right to write in {above}"
    )


def in_words(size: int) -> str:
    return tqdm.format_sizeof(size, "B")
