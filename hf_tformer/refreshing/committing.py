"""Renew the code of a repository: one commit on top of the one that was read, loaded back, pinned.

Weights are not sent again. A commit that was pushed meanwhile is not overwritten: the Hub refuses a
commit whose parent is no longer the newest.
"""

from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, snapshot_download

from .. import __version__
from ..checking.folder import NOT_LOADED
from ..publishing.errors import HubErrors, PublishError
from ..publishing.upload import verify_arrival
from . import card as card_parts
from .renewal import Change, Limits, Refreshed, RefreshError, renewed


def refresh_repository(
    repo_id: str, branch: str, token: str | bool | None, dry_run: bool, limits: Limits
) -> Refreshed:
    api = HfApi(token=token)
    try:
        with HubErrors(repo_id, "refresh") as progress:
            parent = api.model_info(repo_id, revision=branch).sha
            snapshot = snapshot_download(
                repo_id, revision=parent, token=token, ignore_patterns=list(NOT_LOADED)
            )
            with renewed(Path(snapshot), repo_id, limits, branch) as (staged, result):
                if dry_run:
                    return result
                commit = parent
                if result.changes:
                    commit = send(api, repo_id, branch, staged, result.changes, parent)
                    result.written, result.commit = True, commit
                    progress.state = f"commit {commit[:10]} is there, but was not verified"
                    verify_arrival(staged, repo_id, commit, token, limits.without_walls)
                    progress.state = f"commit {commit[:10]} is there, but its card does not pin it"
                if pin(api, repo_id, branch, staged, commit):
                    result.written = True
                return result
    except PublishError as error:
        raise RefreshError(str(error)) from error


def send(
    api: HfApi, repo_id: str, branch: str, staged: Path, changes: list[Change], parent: str
) -> str:
    """Send the changes in one commit; return its name."""
    operations = [
        CommitOperationAdd(change.file, staged / change.file)
        if change.after
        else CommitOperationDelete(change.file)
        for change in changes
    ]
    info = api.create_commit(
        repo_id,
        operations,
        commit_message=f"Renew the code with hf_tformer {__version__}",
        revision=branch,
        parent_commit=parent,
    )
    return info.oid


def pin(api: HfApi, repo_id: str, branch: str, staged: Path, commit: str) -> bool:
    """Send the card with `commit` in its programs, if it is a card of ours that pins no commit;
    return whether it was sent."""
    path = staged / "README.md"
    card = card_parts.read(path) if path.is_file() else ""
    if not card_parts.is_ours(card) or card_parts.pins_a_commit(card):
        return False
    api.upload_file(
        path_or_fileobj=card_parts.with_revision(card, commit).encode("utf-8"),
        path_in_repo="README.md",
        repo_id=repo_id,
        revision=branch,
        parent_commit=commit,
        commit_message=f"Pin {commit[:10]} in the card",
    )
    return True
