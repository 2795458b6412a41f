"""The code of a published checkpoint, renewed: a folder or a repository gets that of this package.

api.py         `hf_tformer.refresh`: of a folder, or of a repository
renewal.py     what would change, proven by equal answers
replacing.py   into a local folder, so that it opens whenever one is interrupted
committing.py  into a repository: one commit, loaded back, pinned
card.py        the table of hashes and the pinned revision of a card that `publish` wrote
command.py     `tformer refresh`
"""

from .api import refresh
from .renewal import Change, Refreshed, RefreshError

__all__ = ["Change", "RefreshError", "Refreshed", "refresh"]
