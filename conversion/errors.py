"""The one error that a conversion raises on purpose."""

from hf_tformer.inside import printable


class ConversionError(ValueError):
    """What cannot be converted, and what to do about it, in one sentence."""

    def __init__(self, sentence: str):
        super().__init__(printable(sentence))  # it names files and values that others chose
