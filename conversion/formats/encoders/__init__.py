"""The formats of encoders in transformers."""

from . import bert, embeddinggemma, eurobert, modernbert

FORMATS = (*bert.FORMATS, *modernbert.FORMATS, *eurobert.FORMATS, *embeddinggemma.FORMATS)
