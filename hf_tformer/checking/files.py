"""Open the files of a stranger's folder so that none can hang, exhaust or mislead the reader.

The folder may hold pipes, devices, links that lead elsewhere and files without end. Only regular
files of the folder itself are opened, and only up to a limit.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

CODE_LIMIT = 1 << 20  # bytes of one file of code; the largest honest ones have a third of that
JSON_LIMIT = 64 << 20  # a large vocabulary has half of that
TOGETHER = 8  # times the limit of one file, for all files of that limit
HOLES = 16 << 20  # bytes of a file that may not be mostly a hole
NAMES_LIMIT = 20_000  # files and folders
DEPTH = 30  # folders in folders
NOT_VISITED = {".git"}  # a name with a dot, which no reference to code can have
LITTER = "__pycache__"  # only its code is read: a reference can lead to it


class UnreadableError(Exception):
    """The reason why a file was not read, as the end of a sentence that begins with its name."""


class Files:
    """The files in a folder: those of `names` may be opened, those of `faults` may not."""

    def __init__(self, path: Path) -> None:
        self.path, self.roots = path, roots_of(path)
        self.names: set[str] = set()
        self.faults: dict[str, str] = {}  # name → why
        self.spent: dict[int, int] = Counter()  # limit → bytes read under it
        for count, name in enumerate(self.walk()):
            if count >= NAMES_LIMIT:
                self.faults["."] = f"holds more than {NAMES_LIMIT} files, which were not looked at"
                break
            self.look_at(name)

    def walk(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self.path):
            folders[:] = sorted(set(folders) - NOT_VISITED)
            if len(Path(folder).relative_to(self.path).parts) > DEPTH:
                self.faults[Path(folder).relative_to(self.path).as_posix()[:99]] = "is too deep"
                folders.clear()
            linked = [name for name in folders if Path(folder, name).is_symlink()]
            if LITTER in Path(folder).relative_to(self.path).parts:
                files = [name for name in files if name.endswith(".py")]
            for name in sorted([*files, *linked]):
                yield Path(folder, name).relative_to(self.path).as_posix()

    def look_at(self, name: str) -> None:
        path = self.path / name
        try:
            target = path.resolve(strict=True)
            mode = target.stat().st_mode
        except (OSError, RuntimeError):
            self.faults[name] = "leads nowhere: remove the link"
            return
        if path.is_symlink() and not any(target.is_relative_to(root) for root in self.roots):
            self.faults[name] = "leads out of the folder: replace the link by what it means"
        elif stat.S_ISREG(mode) and has_holes(target):
            self.faults[name] = "is mostly a hole, and larger than what is stored: save it again"
        elif stat.S_ISREG(mode):
            self.names.add(name)
        elif not stat.S_ISDIR(mode):
            self.faults[name] = "is a pipe, a socket or a device: remove it"

    def named(self, suffix: str, deep: bool = False) -> list[str]:
        """Return the names with this ending, sorted; those in inner folders only if `deep`."""
        names = (name for name in self.names if deep or "/" not in name)
        return sorted(name for name in names if name.endswith(suffix))

    def read(self, name: str, limit: int) -> bytes:
        if name in self.faults:
            raise UnreadableError(self.faults[name])
        if name not in self.names:
            raise UnreadableError("is missing")
        try:
            # Not to wait for the other end, should it have become a pipe since it was looked at.
            descriptor = os.open(self.path / name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(limit + 1)
        except OSError as error:
            raise UnreadableError(f"cannot be opened ({error.strerror})") from error
        self.spent[limit] += len(content)
        if len(content) > limit or self.spent[limit] > TOGETHER * limit:
            size = limit if len(content) > limit else TOGETHER * limit
            where = "has" if len(content) > limit else "was not read: with others it has"
            raise UnreadableError(f"{where} more than {size >> 20} MB: make it smaller")
        return content

    def read_json(self, name: str) -> object:
        content = self.read(name, JSON_LIMIT)
        try:
            return json.loads(content.decode("utf-8"), object_pairs_hook=unique)
        except RecursionError as error:
            raise UnreadableError("is nested too deeply to be read: save it again") from error
        except MemoryError as error:
            raise UnreadableError("takes too much memory to be read: make it smaller") from error
        except ValueError as error:
            raise UnreadableError(f"is not JSON ({error}): save it again") from error


def has_holes(path: Path) -> bool:
    """Return whether less than a sixteenth of a large file is stored: the rest reads as zeros."""
    found = path.stat()
    if found.st_size < HOLES or getattr(found, "st_blocks", HOLES) * 512 >= found.st_size / 16:
        return False
    with path.open("rb") as file:  # some file systems never say how much they store
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE) < found.st_size


def roots_of(folder: Path) -> list[Path]:
    """Return the folder, and the blobs of the cached repository that it is a snapshot of."""
    parents = [parent.parent for parent in folder.parents if parent.name == "snapshots"]
    return [folder, *(parent / "blobs" for parent in parents)]


def unique(pairs: list[tuple[str, object]]) -> dict:
    """Return a JSON object as a dict; refuse a key that stands in it twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = counts.most_common(1)[0][0]
        raise ValueError(f"{twice!r} is there twice, and readers may differ which one counts")
    return content


def few(names: Iterable[str], limit: int = 5) -> str:
    """Return the first of many names, joined by commas."""
    names = list(names)
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
