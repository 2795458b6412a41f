"""Publish a model in memory or a saved folder as a repository that others can load.

Everything arrives in one commit, or nothing does. The commit is downloaded again, compared file by
file and loaded by a process that cannot import this package. Only then a second commit pins the
first one in the card: a commit cannot contain its own name.
"""

import filecmp
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, snapshot_download
from huggingface_hub.utils import filter_repo_objects
from safetensors import safe_open

from ..atomic_folders import undone_by_signals, unfinished_folder
from ..path_safety import fault_of_file
from .card import auto_class_of, read_config, write_card
from .errors import HubErrors, PublishError
from .refusals import refuse_incomplete

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# The files of a repository. Optimizer states and pickles beside a checkpoint are not published.
PUBLISHED = ("*.json", "*.safetensors", "*.py", "*.model", "*.txt", "*.jinja", "README.md")
# Files of an earlier publication that are removed unless they are sent again.
STALE = ["*.safetensors", "*.safetensors.index.json", "*.py", "*.bin"]

STAGING = re.compile(r"tformer-publish-[0-9a-f]{8}")

# A reader without this package: it cannot be imported, even where it is installed.
READ_BACK = """
import sys
sys.modules["hf_tformer"] = None
import transformers
repo_id, revision, auto_class = sys.argv[1:]
load = getattr(transformers, auto_class).from_pretrained
model, report = load(repo_id, revision=revision, trust_remote_code=True, output_loading_info=True)
faults = {name: sorted(keys)[:5] for name, keys in report.items() if keys}
sys.exit(f"its weights do not fit its code: {faults}" if faults else 0)
"""


@dataclass
class Published:
    """A publication: `commit` holds all of `files`, and is the one that was verified."""

    repo_id: str
    commit: str
    url: str
    files: list[str]


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
    **about: Any,
) -> Published:
    """Publish a model, or a folder that a model was saved to, with its code, tokenizer and card.

    `about` goes into the card: description, training, metrics (a dict), license, language, tags. If
    the folder has a README.md, it is published as it is. With `dry_run` nothing is sent, and the
    files that would be are listed.
    """
    with HubErrors(repo_id) as progress, temporary_folder() as folder:
        stage(model, tokenizer, folder)
        refuse_incomplete(folder)
        own_card = (folder / "README.md").exists()
        if not own_card:
            write_card(folder, repo_id, parameters=count_parameters(folder), **about)
        files = sorted(path.name for path in folder.iterdir())
        if dry_run:
            return Published(repo_id, "", "", files)
        api = HfApi(token=token)
        commit = upload(api, folder, repo_id, private, revision, message)
        progress.state = f"commit {commit[:10]} is there and complete, but was not verified"
        if verify:
            verify_arrival(folder, repo_id, commit, token)
        progress.state = f"commit {commit[:10]} is there, but its card does not pin it yet"
        if not own_card:
            pin(api, folder, repo_id, revision, commit, about)
        return Published(repo_id, commit, f"{api.endpoint}/{repo_id}/tree/{commit}", files)


def temporary_folder() -> AbstractContextManager[Path]:
    parent = Path(tempfile.gettempdir())
    return unfinished_folder(parent, "tformer-publish-", "", STAGING, mode=0o700)


def stage(
    model: "PreTrainedModel | str | os.PathLike",
    tokenizer: "PreTrainedTokenizerBase | None",
    folder: Path,
) -> None:
    """Put the files to publish into an empty folder."""
    if isinstance(model, (str, os.PathLike)):
        source = Path(model)
        if not source.is_dir():
            raise PublishError(f"{source} is not a folder: give one that save_pretrained wrote")
        for pattern in PUBLISHED:
            for path in sorted(source.glob(pattern)):
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


def verify_arrival(folder: Path, repo_id: str, commit: str, token: str | bool | None) -> None:
    """Download the commit into an empty cache, compare it, and load it in a fresh process."""
    with temporary_folder() as cache:
        arrived = Path(snapshot_download(repo_id, revision=commit, cache_dir=cache, token=token))
        names = [path.name for path in folder.iterdir()]
        _, different, absent = filecmp.cmpfiles(folder, arrived, names, shallow=False)
        damaged = sorted(different + absent)
        if damaged:
            raise PublishError(
                f"{damaged} arrived damaged in {repo_id} at {commit[:10]}: publish again, and tell "
                "nobody to use that commit"
            )
        auto_class = auto_class_of(read_config(folder))
        environment = {
            **os.environ,
            "HF_HUB_CACHE": str(cache),
            "HF_MODULES_CACHE": f"{cache}/modules",
        }
        if isinstance(token, str) and token:
            environment["HF_TOKEN"] = token
        command = [sys.executable, "-c", READ_BACK, repo_id, commit, auto_class]
        errors, status = run_to_end(command, env=environment, cwd=cache)
        if status:
            last = (errors.strip().splitlines() or [f"its process ended with {status}"])[-1]
            raise PublishError(f"{repo_id} at {commit[:10]} arrived, but does not load: {last}")


def run_to_end(command: list[str], **options: Any) -> tuple[str, int]:
    """Return a process's stderr and exit status; a signal that ends this process kills it, too."""
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, **options) as process:
        with undone_by_signals(process.kill):
            _, errors = process.communicate()
        return errors, process.returncode
