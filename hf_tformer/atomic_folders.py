"""Write folders whole or not at all: an unfinished one is removed with its process, or by the next.

Ctrl-C and errors unwind the stack, which removes the folder. SIGTERM and SIGHUP do not, so handlers
remove it first. After SIGKILL the next process removes what is left. It recognises an abandoned
folder by its lock: the system releases the lock when its process ends, however that happens. On
file systems without such locks, and on Windows, abandoned folders stay.
"""

import contextlib
import os
import re
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # the name stands for a module

ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
PENDING: list[tuple[int, Callable]] = []  # process and what it has to undo, the oldest first

# The files that mark a folder as a model; they are moved into place after everything else.
MARKS = ("config.json", "adapter_config.json")


class Savable(Protocol):
    """A model, a tokenizer or an adapter."""

    def save_pretrained(self, folder: Path) -> object: ...


def save_whole(folder: str | Path, *parts: Savable) -> None:
    """Save into an inner folder, then move the files: `folder` holds a whole model or none."""
    folder = Path(folder)
    with folder_within(folder) as saving:
        for part in parts:
            part.save_pretrained(saving)
        for path in sorted(saving.iterdir(), key=lambda path: path.name in MARKS):
            path.replace(folder / path.name)


def folder_within(folder: Path) -> contextlib.AbstractContextManager[Path]:
    """Make an unfinished folder inside this one, for files that are moved out once complete."""
    return unfinished_folder(folder, ".saving-", "", re.compile(r"\.saving-\w{8}"))


@contextlib.contextmanager
def unfinished_folder(
    parent: Path, prefix: str, suffix: str, rests: re.Pattern, mode: int = 0o777
) -> Iterator[Path]:
    """Make a folder in `parent`, which is removed at the end unless it has been moved away.

    Random digits stand between prefix and suffix. Folders that match `rests` and belong to no
    living process are removed first.
    """
    remove_rests(parent, rests)
    made: list[Path] = []

    def remove() -> None:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)

    with undone_by_signals(remove), contextlib.ExitStack() as at_end:
        at_end.callback(remove)
        # Between making and locking it, another process may take it for an abandoned one.
        while not (made and is_ours(made[-1], at_end)):
            made.append(parent / f"{prefix}{uuid.uuid4().hex[:8]}{suffix}")
            made[-1].mkdir(mode=mode)
        yield made[-1]


def is_ours(folder: Path, at_end: contextlib.ExitStack) -> bool:
    """Lock the folder until the end; return whether it exists and no other process has it."""
    try:
        lock = at_end.enter_context(locked(folder))
        return lock is None or os.path.samestat(os.fstat(lock), folder.stat())
    except (FileNotFoundError, BlockingIOError):
        return False
    except OSError:
        return folder.is_dir()  # on a file system without locks


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int | None]:
    """Hold the lock of a folder: yield its descriptor, or None on Windows.

    A BlockingIOError says that another process holds it, an OSError that there are no locks here.
    """
    if fcntl is None:
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def remove_rests(parent: Path, rests: re.Pattern) -> None:
    """Remove this user's folders that match the pattern and that no living process has locked."""
    with contextlib.suppress(OSError):
        found = [path for path in parent.iterdir() if rests.fullmatch(path.name)]
        for path in found:
            with contextlib.suppress(OSError), locked(path) as lock:
                if lock is not None and os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def undone_by_signals(undo: Callable[[], None]) -> Iterator[None]:
    """Call `undo` if SIGTERM or SIGHUP ends the process meanwhile.

    Where a program handles or ignores these signals itself, nothing changes.
    """
    entry = (os.getpid(), undo)
    PENDING.append(entry)
    ours = []
    if threading.current_thread() is threading.main_thread():
        ours = [number for number in ENDINGS if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, undo_and_end)
    try:
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is undo_and_end:  # unless other code has replaced it
                signal.signal(number, signal.SIG_DFL)
        PENDING.remove(entry)


def undo_and_end(number: int, frame: object) -> None:
    for process, undo in reversed(PENDING):
        if process == os.getpid():  # a forked process does not undo what its parent does
            undo()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
