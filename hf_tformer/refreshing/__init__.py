"""The code of a published checkpoint, renewed: a folder or a repository gets that of this package.

refreshing.py  `hf_tformer.refresh`: what would change, proven by equal answers, and nothing else
replacing.py   into a local folder, so that it opens whenever one is interrupted
committing.py  into a repository: one commit, loaded back, pinned
card.py        the table of hashes and the pinned revision of a card that `publish` wrote
command.py     `tformer refresh`
"""

from .refreshing import Change, Refreshed, RefreshError, refresh

__all__ = ["Change", "RefreshError", "Refreshed", "refresh"]
