"""Show attention: which token attends to which, for every layer and head.

attention.py  `hf_tformer.attention_maps`: run a model and collect the weights of each head
maps.py       the weights of one kind of attention, as tables and as a picture
recording.py  what the weights are computed from: query, key, scale, bias
measures.py   numbers that describe a head, such as its entropy
page.py       the attention page: one HTML file
packing.py    compress the numbers of that page
page/         its script, in TypeScript; `make page` builds it
command.py    `tformer view`
"""

from .attention import AttentionMaps, attention_maps
from .maps import AttentionMap

__all__ = ["AttentionMap", "AttentionMaps", "attention_maps"]
