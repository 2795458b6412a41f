"""`hf_tformer.refresh`: renew the code of a folder or of a repository."""

import os
from pathlib import Path

from ..checking.folder import CheckError
from ..checking.fresh_process import TIMEOUT
from .committing import refresh_repository
from .renewal import Limits, Refreshed, RefreshError
from .replacing import refresh_folder


def refresh(
    source: str | os.PathLike,
    *,
    dry_run: bool = False,
    revision: str = "main",
    token: str | bool | None = None,
    timeout: float = TIMEOUT,
    without_walls: bool = False,
    run_anyway: bool = False,
) -> Refreshed:
    """Replace the code in a folder or repository by that of the installed package.

    `revision` is the branch of a repository. With `dry_run` everything is compared and nothing is
    written. `timeout` (seconds) limits each of the two processes that run the code. Code that
    looks dangerous is refused, unless `run_anyway`; where walls are missing, unknown code only runs
    `without_walls`.
    """
    limits = Limits(timeout, without_walls, run_anyway)
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            if revision != "main":
                reason = "is a folder: a revision can only be chosen of a repository"
                raise RefreshError(f"{source} {reason}", unsuitable=True)
            return refresh_folder(path.resolve(), dry_run, limits)
        if path.exists() or str(source).startswith((".", "/", "~")) or str(source).count("/") != 1:
            reason = "is neither a folder here nor a repository's name (user/name): check it"
            raise RefreshError(f"{source} {reason}", unsuitable=True)
        return refresh_repository(str(source), revision, token, dry_run, limits)
    except CheckError as error:
        raise RefreshError(str(error), unsuitable=True) from error
    except OSError as error:
        sentence = f"{source} could not be read or copied ({error}): nothing was changed"
        raise RefreshError(sentence) from error
