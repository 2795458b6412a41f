"""Publishing: one call from a model in memory or a saved folder to a repository that others can
load.

Everything arrives in one commit, or nothing does. What arrived is downloaded again, compared file
by file and loaded by a process that cannot import this package. Only then a second commit pins that
first one in the card: a commit cannot contain its own name.
"""

import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    snapshot_download,
)
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils import filter_repo_objects
from safetensors import SafetensorError, safe_open

from ..atomic_folders import undone_by_signals, unfinished_folder
from ..path_safety import fault_of_file
from .card import auto_class_of, read_config, write_card
from .errors import PublishError
from .refusals import refuse_incomplete

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What belongs into a repository. Optimizer states and pickles beside a checkpoint stay behind.
PUBLISHED = ("*.json", "*.safetensors", "*.py", "*.model", "*.txt", "*.jinja", "README.md")
# What an earlier publication may have left there: shards, code and pickles that are no longer ours.
STALE = ["*.safetensors", "*.safetensors.index.json", "*.py", "*.bin"]

STAGING = re.compile(r"tformer-publish-[0-9a-f]{8}")

# A reader who never heard of this package: it may not be imported, even where it is installed.
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
    """Where it is; `commit` holds everything, and is the one that was verified."""

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
    **about: object,
) -> Published:
    """Publishes a model (or a folder that one was saved to) with its code, tokenizer and card.

    `about` goes into the card: description, training, metrics (a dict), license, language, tags. A
    README.md of the folder's own is published as it is. With `dry_run` nothing leaves this machine,
    and the files that would are listed.
    """
    with Sentences(repo_id) as progress, temporary_folder() as folder:
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
    """Puts what is to be published into an empty folder."""
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
                size = 1
                for length in tensors.get_slice(name).get_shape():
                    size *= length
                total += size
    return total


def upload(
    api: HfApi, folder: Path, repo_id: str, private: bool, revision: str, message: str | None
) -> str:
    """One commit with everything; its name."""
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
    api: HfApi, folder: Path, repo_id: str, revision: str, commit: str, about: dict[str, object]
) -> None:
    """A second commit, of the card alone: its snippets name the first one."""
    write_card(folder, repo_id, parameters=count_parameters(folder), revision=commit, **about)
    api.upload_file(
        path_or_fileobj=folder / "README.md",
        path_in_repo="README.md",
        repo_id=repo_id,
        revision=revision,
        commit_message=f"Pin {commit[:10]} in the card",
    )


def verify_arrival(folder: Path, repo_id: str, commit: str, token: str | bool | None) -> None:
    """Downloads the commit into an empty cache, compares it, and loads it in a fresh process."""
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
        if token:
            environment["HF_TOKEN"] = token
        command = [sys.executable, "-c", READ_BACK, repo_id, commit, auto_class]
        told, status = run_until_told_to_end(command, env=environment, cwd=cache)
        if status:
            last = (told.strip().splitlines() or [f"its process ended with {status}"])[-1]
            raise PublishError(f"{repo_id} at {commit[:10]} arrived, but does not load: {last}")


def run_until_told_to_end(command: list[str], **options: object) -> tuple[str, int]:
    """What a process says on stderr, and how it ends; signals that end this one kill it, too."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, **options) as process:
        with undone_by_signals(process.kill):
            _, told = process.communicate()
        return told, process.returncode


class Sentences:
    """Turns what the Hub's client raises into a sentence: what went wrong, what is changed."""

    def __init__(self, repo_id: str, verb: str = "publish"):
        self.repo_id, self.verb = repo_id, verb
        self.state = "nothing was changed there"

    def __enter__(self) -> "Sentences":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: object) -> None:
        sentence = None if isinstance(error, PublishError) else self.sentence(error)
        if sentence:
            raise PublishError(f"{self.repo_id}: {sentence} ({self.state})") from error

    def sentence(self, error: BaseException | None) -> str | None:
        if isinstance(error, GatedRepoError):
            return "the repository is gated: ask for access on its page, then `hf auth login`"
        if isinstance(error, RepositoryNotFoundError):
            return "it does not exist, or your token may not see it: check both (`hf auth login`)"
        if isinstance(error, HfHubHTTPError):
            return self.sentence_of_status(getattr(error.response, "status_code", None))
        if isinstance(error, RuntimeError) and error.__cause__:  # as uploads of large files raise
            return self.sentence(error.__cause__)
        # The client's own library for HTTP has had several names.
        if type(error).__module__.startswith("http"):
            return f"the connection to the Hub was lost ({type(error).__name__}): {self.verb} again"
        if isinstance(error, (OSError, SafetensorError)):
            return f"the files could not be written or read: {error}"
        return None

    def sentence_of_status(self, status: int | None) -> str:
        if status in (401, 403):
            return f"the Hub refused ({status}): `hf auth login` with a token that may write"
        if status in (409, 412):
            return f"someone else pushed at the same moment: look at it, then {self.verb} again"
        return f"the Hub answered {status}: {self.verb} again"
