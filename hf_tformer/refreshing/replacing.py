"""Replace the code in a local folder, which opens and answers even if this is interrupted.

Files cannot be replaced all at once, and a mixture of old and new ones would be a program that
nobody wrote. The folder itself is not exchanged: it may be a mount, or the working directory of a
process. So config.json leads elsewhere meanwhile:

1. All new files are written into a folder inside, which nothing names yet.
2. config.json, by rename: its auto_map names the code in that folder.
3. Files of code and the card, one by one, by rename; what is obsolete goes.
4. config.json, by rename: its auto_map names the files beside it.
5. The folder inside goes.

Up to step 2 the old code is loaded, afterwards the new code, which answers the same. The folder is
locked, so an inner folder of that name was left by a run that has ended.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..atomic_folders import locked
from ..checking.folder import Folder, digest, opened
from ..checking.package_code import INSIDE, code_under, loaded_code, with_auto_map
from .renewal import Change, Limits, Refreshed, RefreshError, renewed

NAMES = "files.txt"  # in the inner folder: the files to replace or remove


def refresh_folder(path: Path, dry_run: bool, limits: Limits) -> Refreshed:
    with alone_in(path):
        left_behind = sorted(path.glob(INSIDE + "[0-9a-f]" * 8))
        known = {name for place in left_behind for name in names_in(place)}
        with renewed(path, str(path), limits, known=known) as (staged, result):
            if dry_run:
                return result
            if result.changes:
                refuse_links(path, result.changes)
                replace(path, staged, result.changes)
                result.written = True
            for place in left_behind:
                shutil.rmtree(place, ignore_errors=True)
            return result


@contextlib.contextmanager
def alone_in(path: Path) -> Iterator[None]:
    """Let one process at a time refresh a folder; on Windows nothing tells two of them apart."""
    try:
        with locked(path):
            yield
    except BlockingIOError as error:
        raise RefreshError(f"{path} is being refreshed by another process: wait for it") from error


def names_in(place: Path) -> list[str]:
    try:
        return (place / NAMES).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def refuse_links(path: Path, changes: Iterable[Change]) -> None:
    """Refuse links, as in a snapshot in the Hub's cache, which stands for one commit."""
    for change in changes:
        if (path / change.file).is_symlink():
            raise RefreshError(
                f"{path / change.file} is a link, as in the cache of the Hub: refresh a copy, or "
                "name the repository",
                unsuitable=True,
            )


def replace(path: Path, staged: Path, changes: list[Change]) -> None:
    inside = path / f"{INSIDE}{uuid.uuid4().hex[:8]}"
    state = "nothing was changed"
    try:
        write_inside(path, staged, changes, inside)
        refuse_changed_meanwhile(path, changes)
        (inside / "config.json").replace(path / "config.json")
        state = f"its new code is loaded from {inside.name}: refresh again to finish"
        for change in changes:
            if change.after is None:
                (path / change.file).unlink(missing_ok=True)
            elif change.file != "config.json":
                (inside / "final" / change.file).replace(path / change.file)
        (inside / "final" / "config.json").replace(path / "config.json")
        state = "everything is in its place"
        shutil.rmtree(inside)
    except BaseException as error:
        if state == "nothing was changed":
            shutil.rmtree(inside, ignore_errors=True)
        if isinstance(error, OSError):
            reason = f"{path} could not be written ({error.strerror}): {state}"
            raise RefreshError(reason) from error
        raise


def write_inside(path: Path, staged: Path, changes: list[Change], inside: Path) -> None:
    """Write all files that are put in place later, and the code as it is loaded meanwhile."""
    config = opened(staged).config
    (inside / "final").mkdir(parents=True)
    names = "".join(f"{change.file}\n" for change in changes)
    write(inside / NAMES, names.encode("utf-8"))
    for name in {"config.json", *(change.file for change in changes if change.after)}:
        write(inside / "final" / name, (staged / name).read_bytes(), like=path / name)
    folder = Folder(path)
    code_files = code_under(folder).keys() | loaded_code(folder)
    # A configuration names its models' files in its own code, too.
    moved = {reference: f"{inside.name}/{reference}" for reference in config["auto_map"].values()}
    for name in sorted(name for name in code_files if (staged / name).exists()):
        code = (staged / name).read_text(encoding="utf-8")
        for reference, there in moved.items():
            code = code.replace(f'"{reference}"', f'"{there}"')
        write(inside / name, code.encode("utf-8"))
    auto_map = {auto: moved[reference] for auto, reference in config["auto_map"].items()}
    text = (staged / "config.json").read_bytes().decode("utf-8")
    write(
        inside / "config.json", with_auto_map(text, auto_map).encode("utf-8"), path / "config.json"
    )


def write(file: Path, content: bytes, like: Path | None = None) -> None:
    """Write a file to the disk, with the permissions of the file that it will replace."""
    with file.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    if like is not None and like.exists():
        shutil.copymode(like, file)


def refuse_changed_meanwhile(path: Path, changes: Iterable[Change]) -> None:
    """Refuse files that were changed since they were compared: that may have taken long."""
    for change in changes:
        file = path / change.file
        if (digest(file) if file.is_file() else None) != change.before:
            raise RefreshError(f"{file} was changed meanwhile, so nothing was written: try again")
