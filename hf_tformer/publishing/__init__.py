"""To the Hub and back.

upload.py      `hf_tformer.publish`: one commit, loaded back, pinned
refusals.py    what is found wrong before anything is sent
card.py        the model card
command.py     `tformer publish`
"""

from .upload import Published, PublishError, publish

__all__ = ["PublishError", "Published", "publish"]
