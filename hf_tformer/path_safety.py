"""Read folders of strangers safely: refuse links out of them, and make names printable.

A link that leads out of a folder would copy or publish a file of this machine, and opening a pipe
waits for ever. So both are refused before anything is opened.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

# The files that transformers, a tokenizer or this package may open in a model folder.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".chkpt")
TEXTS = (".json", ".txt", ".model", ".spm", ".jinja", ".md", ".py")
TEMPLATES = "additional_chat_templates"  # the one inner folder that is read
LONGEST = 1200  # characters of a message
KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


def fault_of_path(path: str | Path) -> str | None:
    """Return why a model folder or file must not be read, or None.

    A link that the user names may lead anywhere; links in a folder must not leave it.
    """
    path = Path(path)
    if not path.is_dir():
        return fault_of_file(path)
    return next(filter(None, (fault_of_file(entry, path) for entry in opened(path))), None)


def opened(folder: Path) -> Iterator[Path]:
    """Yield the entries of a model folder that may be opened, sorted by name."""
    for entry in sorted(folder.iterdir()):
        if entry.name == TEMPLATES and entry.is_dir():
            yield from sorted(entry.glob("*.jinja"))
        elif entry.suffix.lower() in (*WEIGHTS, *TEXTS) or entry.name == TEMPLATES:
            yield entry


def fault_of_file(path: Path, folder: Path | None = None) -> str | None:
    """Return why `path` must not be read: it is no regular file, or leads out of `folder`."""
    try:
        place = Path(os.path.realpath(path, strict=True))
        mode = place.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"{path} cannot be read ({reason}): fetch it again, or remove it"
    if folder is not None and not any(place.is_relative_to(root) for root in roots(folder)):
        return f"{path} leads out of its folder, to {place}: put the file itself there"
    if not stat.S_ISREG(mode):
        kind = next((words for is_kind, words in KINDS.items() if is_kind(mode)), "something else")
        return f"{path} is {kind} where a file belongs: remove it, or give another place"
    return None


def roots(folder: Path) -> list[Path]:
    """Return the folder and, for a snapshot in the Hub's cache, the files of its repository.

    In the cache, models--USER--NAME/snapshots/COMMIT/config.json is a link to ../../blobs/HASH.
    """
    folder = Path(os.path.realpath(folder))
    repositories = [
        snapshot.parent.parent
        for snapshot in (folder, *folder.parents)
        if snapshot.parent.name == "snapshots"
        and snapshot.parent.parent.name.startswith("models--")
    ]
    return [folder, *(repository / "blobs" for repository in repositories)]


def printable(text: object) -> str:
    """Return the text with characters as escapes that move a cursor, break a line or are invisible.

    The middle of a very long text is omitted: it may have been made to fill the screen.
    """
    text = str(text)
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
