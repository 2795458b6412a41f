"""Folders that are being written: removed when their process ends, or by the next one.

Ctrl-C and errors unwind the stack, and what is unfinished goes with it. SIGTERM and SIGHUP do not:
here they remove it first. After SIGKILL nobody is left to, so the next process removes the rests. A
lock tells which they are: the system lets go of it when its process ends, however that happens. On
file systems without such locks, and on Windows, rests stay.
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
    fcntl = None

ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
PENDING: list[tuple[int, Callable]] = []  # process → what it would have to undo, the oldest first

# What marks a folder as a model; moved into place after everything else.
MARKS = ("config.json", "adapter_config.json")


class Savable(Protocol):
    """A model, a tokenizer, an adapter."""

    def save_pretrained(self, folder: Path) -> object: ...


def save_whole(folder: str | Path, *parts: Savable) -> None:
    """Saves in a folder within and moves at the end: the folder shows a whole model or none."""
    folder = Path(folder)
    with folder_within(folder) as saving:
        for part in parts:
            part.save_pretrained(saving)
        for path in sorted(saving.iterdir(), key=lambda path: path.name in MARKS):
            path.replace(folder / path.name)


def folder_within(folder: Path) -> contextlib.AbstractContextManager[Path]:
    """A new folder within this one, for what is moved into it when it is whole."""
    return unfinished_folder(folder, ".saving-", "", re.compile(r"\.saving-\w{8}"))


@contextlib.contextmanager
def unfinished_folder(
    parent: Path, prefix: str, suffix: str, rests: re.Pattern, mode: int = 0o777
) -> Iterator[Path]:
    """A new folder in `parent`, removed at the end unless it has been moved away.

    Something random stands between prefix and suffix. What fits `rests` and belongs to no living
    process is removed first.
    """
    remove_rests(parent, rests)
    made = []

    def remove():
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)

    with undone_by_signals(remove), contextlib.ExitStack() as at_end:
        at_end.callback(remove)
        # Between making and locking it another process may take it for a rest.
        while not (made and is_ours(made[-1], at_end)):
            made.append(parent / f"{prefix}{uuid.uuid4().hex[:8]}{suffix}")
            made[-1].mkdir(mode=mode)
        yield made[-1]


def is_ours(folder: Path, at_end: contextlib.ExitStack) -> bool:
    """Whether the folder is there and nobody else's; it stays locked until the end."""
    try:
        lock = at_end.enter_context(locked(folder))
        return lock is None or os.path.samestat(os.fstat(lock), folder.stat())
    except (FileNotFoundError, BlockingIOError):
        return False


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int | None]:
    """A descriptor that holds the lock of a folder, None where there are no locks."""
    if fcntl is None:
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
        except BlockingIOError:
            raise
        except OSError:
            is_locked = False
        yield descriptor if is_locked else None
    finally:
        os.close(descriptor)


def remove_rests(parent: Path, rests: re.Pattern) -> None:
    """Removes this user's folders that fit the pattern and that no living process has locked."""
    with contextlib.suppress(OSError):
        found = [path for path in parent.iterdir() if rests.fullmatch(path.name)]
        for path in found:
            with contextlib.suppress(OSError), locked(path) as lock:
                if lock is not None and os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def undone_by_signals(undo: Callable[[], None]) -> Iterator[None]:
    """Calls `undo` where SIGTERM or SIGHUP ends the process meanwhile.

    A program that handles or ignores these signals itself keeps its own way.
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
            if signal.getsignal(number) is undo_and_end:  # and nobody else's by now
                signal.signal(number, signal.SIG_DFL)
        PENDING.remove(entry)


def undo_and_end(number: int, frame: object) -> None:
    for process, undo in reversed(PENDING):
        if process == os.getpid():  # a fork is not to undo what its parent does
            undo()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
