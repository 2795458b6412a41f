"""Replace the code in a checkpoint of ours by that of the installed package.

api.py         `hf_tformer.refresh`, for a folder or a repository
renewal.py     find what would change, and prove that the answers stay equal
replacing.py   replace files in a local folder, which opens even if this is interrupted
committing.py  renew a repository: one commit, loaded back, pinned
card.py        the table of hashes and the pinned revision in a card that `publish` wrote
command.py     `tformer refresh`
"""

from .api import refresh
from .renewal import Change, Refreshed, RefreshError

__all__ = ["Change", "RefreshError", "Refreshed", "refresh"]
