"""Mark a folder of files as complete, with a list of their sizes and checksums to verify it by.

The mark is written after everything else. A folder without one was never complete.
"""

import errno
import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..file_integrity import json_object

MARK = "checkpoint.json"
BLOCK = 2**24


def checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found = zlib.crc32(block, found)
    return found


def describe(paths: Iterable[Path]) -> dict[str, list[int]]:
    """Return size and checksum of files by name."""
    return {path.name: [path.stat().st_size, checksum(path)] for path in paths}


def write_mark(folder: Path, files: dict[str, list[int]], content: dict[str, object]) -> None:
    """Write the mark, and wait until the folder is on the disk."""
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise OSError(errno.ENOENT, f"{missing[0]} of another process is not in this folder")
    with (folder / MARK).open("w") as file:
        json.dump({**content, "files": files}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":  # Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_mark(folder: Path) -> dict[str, Any]:
    mark = json_object(folder / MARK)
    if not isinstance(mark.get("files"), dict):
        raise ValueError(f"{folder / MARK} names no files")
    return mark


def fault_of(folder: Path, part: int = 0, parts: int = 1) -> str | None:
    """Return what is damaged, or None; of several readers each verifies its share of the files."""
    try:
        files = sorted(read_mark(folder)["files"].items())
    except (OSError, ValueError) as error:
        return f"{MARK} is missing or damaged" if isinstance(error, OSError) else str(error)
    for name, (size, digest) in files[part::parts]:
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, and {size} were written"
        if checksum(path) != digest:
            return f"{name} is not what was written"
    return None
