"""Where a conversion may write, whether there is room, and a folder that is whole or absent."""

import contextlib
import errno
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm.auto import tqdm

from hf_tformer.atomic_folders import remove_rests, undone_by_signals, unfinished_folder

from .errors import ConversionError

FULL = (errno.ENOSPC, errno.EDQUOT)
PARTIAL = re.compile(r"\..+-[0-9a-f]{8}\.partial")


@contextlib.contextmanager
def appearing(folder: str | Path, source: str | Path, needed: int) -> Iterator[Path]:
    """A folder beside `folder` to write into, which takes its name if nothing fails.

    `needed` is how many bytes of weights will be written. A folder above it that had to be made is
    removed again, too.
    """
    folder = Path(folder).absolute()
    refuse_place(folder, source)
    above = existing_parent(folder)
    remove_rests(folder.parent, PARTIAL)  # which may be what fills the disk
    refuse_too_little_room(above, needed)
    made = [parent for parent in folder.parents if not parent.exists()]
    partial = None

    def remove_made():
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


def refuse_place(folder: Path, source: str | Path) -> None:
    source, place = Path(source).resolve(), folder.resolve()
    if place == source:
        raise ConversionError(f"{folder} is what is to be converted: choose another name for it")
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
    """Whether it was the writing that failed; what is read has its own sentences."""
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
        f"{folder} could not be written ({error.strerror}): choose another place, or ask for the "
        f"right to write in {above}"
    )


def in_words(size: int) -> str:
    return tqdm.format_sizeof(size, "B")
