"""The formats of encoder-decoders in transformers."""

from . import bart, t5

FORMATS = (*bart.FORMATS, *t5.FORMATS)
