"""Publish a model on the Hub, with its code and a card, and load it back.

upload.py     `hf_tformer.publish`: one commit, loaded back, pinned in the card
belonging.py  choose the files that belong to a model
refusals.py   refuse a faulty folder before anything is sent
errors.py     PublishError, and sentences for the errors of the Hub's client
card.py       the model card
command.py    `tformer publish`
"""

from .upload import Published, PublishError, publish

__all__ = ["PublishError", "Published", "publish"]
