"""Publish a model in memory or a saved folder as a repository that others can load.

Everything arrives in one commit, or nothing does. The commit is downloaded again, compared file by
file and loaded by a process that cannot import this package. Only then a second commit pins the
first one in the card: a commit cannot contain its own name.

This process downloads, with the token. The one that loads what arrived is behind walls
(checking/permission.py): it has neither a token nor the network.
"""

import filecmp
import math
import os
import re
import shutil
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, snapshot_download
from huggingface_hub.utils import filter_repo_objects
from safetensors import safe_open

from ..atomic_folders import unfinished_folder
from ..checking.behind_walls import default_memory, run_behind_walls
from ..checking.folder import CheckError, Folder
from ..checking.fresh_process import TIMEOUT
from ..checking.permission import needed_walls, refuse_dangerous, refuse_missing
from ..path_safety import fault_of_file, printable
from .belonging import belonging
from .card import auto_class_of, read_config, write_card
from .errors import HubErrors, PublishError
from .refusals import refuse_incomplete

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Files of an earlier publication that are removed unless they are sent again.
STALE = ["*.safetensors", "*.safetensors.index.json", "*.py", "*.bin"]

STAGING = re.compile(r"tformer-publish-[0-9a-f]{8}")

PROBE = Path(__file__).parent.parent / "checking" / "probe_loading.py"


@dataclass
class Published:
    """A publication: `commit` holds all of `files`, and is the one that was verified.

    `left_out` are the entries of the folder that belong to no model, and were not sent.
    """

    repo_id: str
    commit: str
    url: str
    files: list[str]
    left_out: list[str] = field(default_factory=list)


def publish(
    model: "PreTrainedModel | str | os.PathLike",
    repo_id: str,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    *,
    private: bool = False,
    revision: str = "main",
    token: str | bool | None = None,
    message: str | None = None,
    dry_run: bool = False,
    verify: bool = True,
    without_walls: bool = False,
    **about: Any,
) -> Published:
    """Publish a model, or a folder that a model was saved to, with its code, tokenizer and card.

    `about` goes into the card: description, training, metrics (a dict), license, language, tags. If
    the folder has a README.md, it is published as it is. With `dry_run` nothing is sent, and the
    files that would be are listed. To `verify`, what arrived is loaded behind walls; where they are
    missing, code that is not this package's is refused, unless it may run `without_walls`.
    """
    with HubErrors(repo_id) as progress, temporary_folder() as folder:
        left_out = stage(model, tokenizer, folder)
        refuse_incomplete(folder)
        if verify:
            refuse_what_would_not_run(folder, without_walls)
        own_card = (folder / "README.md").exists()
        if not own_card:
            write_card(folder, repo_id, parameters=count_parameters(folder), **about)
        files = sorted(path.name for path in folder.iterdir())
        if dry_run:
            return Published(repo_id, "", "", files, left_out)
        api = HfApi(token=token)
        commit = upload(api, folder, repo_id, private, revision, message)
        progress.state = f"commit {commit[:10]} is there and complete, but was not verified"
        if verify:
            verify_arrival(folder, repo_id, commit, token, without_walls)
        progress.state = f"commit {commit[:10]} is there, but its card does not pin it yet"
        if not own_card:
            pin(api, folder, repo_id, revision, commit, about)
        url = f"{api.endpoint}/{repo_id}/tree/{commit}"
        return Published(repo_id, commit, url, files, left_out)


def temporary_folder() -> AbstractContextManager[Path]:
    parent = Path(tempfile.gettempdir())
    return unfinished_folder(parent, "tformer-publish-", "", STAGING, mode=0o700)


def stage(
    model: "PreTrainedModel | str | os.PathLike",
    tokenizer: "PreTrainedTokenizerBase | None",
    folder: Path,
) -> list[str]:
    """Put the files to publish into an empty folder; return the names that are left out."""
    left_out = []
    if isinstance(model, (str, os.PathLike)):
        source = Path(model)
        if not source.is_dir():
            raise PublishError(f"{source} is not a folder: give one that save_pretrained wrote")
        names = belonging(source)
        left_out = sorted(f"{p.name}/" if p.is_dir() else p.name for p in source.iterdir())
        left_out = [name for name in left_out if name not in names]
        for path in (source / name for name in sorted(names)):
            if fault := fault_of_file(path, source):
                raise PublishError(fault)
            # Weights may be larger than the disk has room for twice.
            put = os.symlink if path.suffix == ".safetensors" else shutil.copyfile
            put(path.resolve(), folder / path.name)
    elif getattr(model, "is_quantized", False):
        raise PublishError(
            "the model is quantised, and some quantisers save another once it has answered: save "
            "it with save_pretrained as soon as it is quantised, and publish that folder"
        )
    else:
        model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return left_out


def refuse_what_would_not_run(folder: Path, without_walls: bool) -> None:
    """Refuse, before anything is sent, code that could not be verified once it has arrived."""
    remedy = "mend it, or publish with --no-verify, which neither reads nor runs it"
    with tempfile.TemporaryDirectory() as work:
        try:
            refuse_dangerous(Folder(folder), remedy, besides=("files",))  # weights are links here
            if needed := needed_walls(folder, without_walls):
                stood = run_behind_walls(None, work=Path(work), timeout=60)
                refuse_missing(stood, needed)
        except CheckError as error:
            raise PublishError(f"nothing was sent: {error}") from error


def count_parameters(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (a file, not a dict)
                total += math.prod(tensors.get_slice(name).get_shape())
    return total


def upload(
    api: HfApi, folder: Path, repo_id: str, private: bool, revision: str, message: str | None
) -> str:
    """Send everything in one commit; return its name."""
    api.create_repo(repo_id, private=private, exist_ok=True)
    if revision != "main":
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    sent = {path.name: CommitOperationAdd(path.name, path) for path in sorted(folder.iterdir())}
    stale = filter_repo_objects(
        api.list_repo_files(repo_id, revision=revision), allow_patterns=STALE
    )
    gone = [CommitOperationDelete(name) for name in stale if name not in sent]
    # Not upload_folder, which may split a large folder into several commits.
    info = api.create_commit(
        repo_id,
        [*sent.values(), *gone],
        commit_message=message or "Publish the model with its code",
        revision=revision,
    )
    return info.oid


def pin(
    api: HfApi, folder: Path, repo_id: str, revision: str, commit: str, about: dict[str, Any]
) -> None:
    """Send the card again in a second commit, with programs that name the first one."""
    write_card(folder, repo_id, parameters=count_parameters(folder), revision=commit, **about)
    api.upload_file(
        path_or_fileobj=folder / "README.md",
        path_in_repo="README.md",
        repo_id=repo_id,
        revision=revision,
        commit_message=f"Pin {commit[:10]} in the card",
    )


def verify_arrival(
    folder: Path, repo_id: str, commit: str, token: str | bool | None, without_walls: bool = False
) -> None:
    """Download the commit into an empty cache, compare it, and load it in a fresh process."""
    with temporary_folder() as place:
        cache = place / "cache"
        arrived = Path(snapshot_download(repo_id, revision=commit, cache_dir=cache, token=token))
        names = [path.name for path in folder.iterdir()]
        _, different, absent = filecmp.cmpfiles(folder, arrived, names, shallow=False)
        damaged = sorted(different + absent)
        if damaged:
            raise PublishError(
                f"{damaged} arrived damaged in {repo_id} at {commit[:10]}: publish again, and tell "
                "nobody to use that commit"
            )
        try:
            fault = fault_of_loading(arrived.resolve(), place, without_walls)
        except CheckError as error:
            raise PublishError(f"{repo_id} at {commit[:10]} arrived unverified: {error}") from error
        if fault:
            raise PublishError(f"{repo_id} at {commit[:10]} arrived, but does not load: {fault}")


def fault_of_loading(arrived: Path, place: Path, without_walls: bool) -> str | None:
    """Load a snapshot behind walls; return why it does not open, or None."""
    remedy = "look at what else that repository holds, which was there before"
    refuse_dangerous(Folder(arrived), remedy)
    needed = needed_walls(arrived, without_walls)
    work = place / "work"
    work.mkdir()
    outcome = run_behind_walls(
        PROBE,
        [arrived, auto_class_of(read_config(arrived))],
        work=work,
        timeout=TIMEOUT,
        readable=[place / "cache"],
        memory=default_memory(sum(path.stat().st_size for path in arrived.glob("*.safetensors"))),
        needed=needed,
    )
    refuse_missing(outcome, needed)
    if outcome.reason or outcome.lines != [{}]:
        if outcome.lines:
            return printable(f"its weights do not fit its code: {outcome.lines[0]}")
        return printable(outcome.stderr_last_line or f"its process ended: {outcome.reason}")
    return None
