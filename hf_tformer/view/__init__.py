"""Seeing attention.

attention.py  `hf_tformer.attention_maps`: the weights of each head, as tables and as a picture
recording.py  what the weights come from: query, key, scale, bias
measures.py   what a head does, in numbers
page.py       the attention page: one HTML file
packing.py    its numbers, as text
page/         its script, in TypeScript; `make page` builds it
command.py    `tformer view`
"""

from .attention import AttentionMap, AttentionMaps, attention_maps

__all__ = ["AttentionMap", "AttentionMaps", "attention_maps"]
