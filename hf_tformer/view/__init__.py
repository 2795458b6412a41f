"""Seeing attention.

attention.py  `hf_tformer.attention_maps`: the weights of each head, as tables and as a picture
command.py    `tformer view`
"""

from .attention import AttentionMap, attention_maps

__all__ = ["AttentionMap", "attention_maps"]
