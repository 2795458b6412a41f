"""Stage a checkpoint with the code of the installed package, and prove that it answers as before.

    folder or snapshot of a repository → read, and refused if its code is dangerous
        → staged: the same with today's code
        → both run, each in a process behind walls that cannot import this package
        → equal answers? → replacing.py (a folder) or committing.py (a repository)

Unless every head answers as before, nothing is written.
"""

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from .. import __version__
from ..checking.folder import Folder, digest, opened
from ..checking.package_code import (
    code_under,
    is_of_package,
    is_ours,
    obsolete_code,
    stage_with_package_code,
)
from ..checking.permission import DangerousError, refuse_dangerous
from ..checking.same_answers import compare_with_package
from ..families import FAMILIES
from ..publishing.card import code_hashes
from . import card as card_parts


class RefreshError(Exception):
    """A sentence that says why nothing was renewed; `unsuitable` if there is nothing to renew."""

    def __init__(self, sentence: str, unsuitable: bool = False) -> None:
        super().__init__(sentence)
        self.unsuitable = unsuitable


@dataclass(frozen=True)
class Change:
    """The SHA-256 of a file: `before` is None for a new file, `after` for one that is removed."""

    file: str
    before: str | None
    after: str | None


@dataclass
class Refreshed:
    """The result of a refresh; `changes` is empty if the code was that of this package.

    `left` are files of code that are not ours, `notes` are sentences on other findings, and `heads`
    are those whose answers are equal. `commit` holds the new code of a repository.
    """

    source: str
    changes: list[Change] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    written: bool = False
    commit: str | None = None


@dataclass(frozen=True)
class Limits:
    """How the code of a folder may run: for how many seconds, and what may be missing."""

    timeout: float
    without_walls: bool = False
    run_anyway: bool = False


@contextmanager
def renewed(
    path: Path, source: str, limits: Limits, branch: str = "main", known: Collection[str] = ()
) -> Iterator[tuple[Path, Refreshed]]:
    """Yield a staged folder with today's code, proven to answer as before, and its changes.

    `branch` is named by a card of ours until there is a commit; `known` are files that an
    interrupted run was about to replace or remove.
    """
    folder = suitable(path)
    remedy = "mend it, or say --run-anyway to run it behind the walls"
    try:
        refuse_dangerous(folder, remedy, run_anyway=limits.run_anyway)
    except DangerousError as error:
        raise RefreshError(f"nothing was written: {error}") from error
    ours = code_under(folder).keys()
    obsolete = obsolete_code(folder) | {n for n in known if n not in ours and is_ours(path / n)}
    refuse_clashing_names(folder, ours - known)
    with tempfile.TemporaryDirectory() as place:
        staged = Path(place)
        stage_with_package_code(folder, staged, obsolete)
        result = Refreshed(source)
        result.notes += stage_card(path, staged, branch)
        result.changes = changes(path, staged, obsolete)
        result.left = sorted({file.name for file in path.glob("*.py")} - obsolete - ours)
        if any(change.file != "README.md" for change in result.changes):
            comparison = compare_with_package(folder, limits.timeout, limits.without_walls)
            if comparison.difference:
                raise RefreshError(
                    f"nothing was written, because the code of hf_tformer {__version__} does not "
                    f"answer as {source} does: {comparison.difference}{saved_beside(folder.config)}"
                )
            result.heads = comparison.heads
        yield staged, result


def saved_beside(config: dict) -> str:
    """Return the end of an error that says where to refresh what another transformers saved, or ""
    where it was this one."""
    saved, installed = config.get("transformers_version"), metadata.version("transformers")
    if not isinstance(saved, str) or saved.split(".")[:2] == installed.split(".")[:2]:
        return ""
    return (
        f"; it was saved with transformers {saved}, and its code may answer otherwise beside "
        f"{installed}: refresh it where transformers {saved} is installed"
    )


def suitable(path: Path) -> Folder:
    """Return the folder if it is one of ours, with code and weights, of a format known here."""
    from ..model.configuration_base import FORMAT_VERSION

    folder = opened(path)
    config = folder.config
    model_type, auto_map = config.get("model_type"), config.get("auto_map")
    version = config.get("format_version", 1)
    sentence = None
    if is_of_package(folder) and not (isinstance(auto_map, dict) and any(path.glob("*.py"))):
        sentence = f"{path} brings no code of its own, so there is none to renew"
    elif not code_under(folder):
        sentence = (
            f"model_type is {model_type!r}: refresh takes {' and '.join(FAMILIES)}, and models "
            "that are built on their code"
        )
    elif foreign := [name for name in config["auto_map"].values() if "--" in str(name)]:
        sentence = f"its code is in another repository ({foreign[0]}): refresh that one"
    elif not isinstance(version, int) or version > FORMAT_VERSION:
        sentence = (
            f"format_version is {version}, but the installed hf_tformer {__version__} writes "
            f"{FORMAT_VERSION}: upgrade with `pip install --upgrade hf-tformer`"
        )
    elif not any(path.glob("model*.safetensors")):
        sentence = f"{path} has no safetensors weights to run: save the model with save_pretrained"
    if sentence:
        raise RefreshError(sentence, unsuitable=True)
    return folder


def refuse_clashing_names(folder: Folder, names: set[str]) -> None:
    """Refuse to overwrite a file that the model does not load: it may be anyone's."""
    for name in sorted(names - {source.name for source in folder.sources}):
        path = folder.path / name
        if path.exists() and not is_ours(path):
            raise RefreshError(
                f"{name} is not part of the model, but its new code needs that name: rename it",
                unsuitable=True,
            )


def stage_card(path: Path, staged: Path, branch: str) -> list[str]:
    """Renew the table of hashes in a card of ours; return notes on the card."""
    if not (path / "README.md").is_file():
        return []
    card = card_parts.read(path / "README.md")
    if not card_parts.is_ours(card):
        return ["README.md is left as it is: publish did not write it"]
    listed = card_parts.hashes_of(card)
    hashes = code_hashes(staged)
    if listed == hashes:
        return []
    card = card_parts.with_revision(card_parts.with_hashes(card, hashes), branch)
    (staged / "README.md").unlink()
    (staged / "README.md").write_text(card, encoding="utf-8")
    return [
        f"{name} is not what it was when its card was written"
        for name, then in sorted(listed.items())
        if (path / name).is_file() and digest(path / name) != then
    ]


def changes(path: Path, staged: Path, obsolete: set[str]) -> list[Change]:
    names = {file.name for file in staged.iterdir() if not file.is_symlink()} | obsolete
    found = []
    for name in sorted(names):
        before, after = (
            digest(folder / name) if (folder / name).is_file() else None
            for folder in (path, staged)
        )
        if before != after:
            found.append(Change(name, before, after))
    return found
