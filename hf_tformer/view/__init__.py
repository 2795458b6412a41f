"""Seeing attention.

attention.py  `hf_tformer.attention_maps`: the weights of each head
maps.py       a kind of attention as tables and as a picture
recording.py  what the weights come from: query, key, scale, bias
measures.py   what a head does, in numbers
page.py       the attention page: one HTML file
packing.py    its numbers, as text
page/         its script, in TypeScript; `make page` builds it
command.py    `tformer view`
"""

from .attention import AttentionMaps, attention_maps
from .maps import AttentionMap

__all__ = ["AttentionMap", "AttentionMaps", "attention_maps"]
