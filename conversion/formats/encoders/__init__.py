"""The formats of encoders in transformers."""

from . import bert, embeddinggemma, eurobert, modernbert, roberta, rotary

FORMATS = (
    *bert.FORMATS,
    *roberta.FORMATS,
    *modernbert.FORMATS,
    *eurobert.FORMATS,
    *embeddinggemma.FORMATS,
    *rotary.FORMATS,
)
