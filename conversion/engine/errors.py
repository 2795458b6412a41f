"""The one error that a conversion raises on purpose, and its most frequent kind."""

from hf_tformer.path_safety import printable


class ConversionError(ValueError):
    """What cannot be converted, and what to do about it, in one sentence."""

    def __init__(self, sentence: str):
        super().__init__(printable(sentence))  # it names files and values that others chose


class UnexpressibleError(ConversionError):
    """A field of a configuration has another value than those that the other side stands for."""

    def __init__(self, name: str, actual: object, reader: str, values: tuple):
        converts = "converts" if len(values) == 1 else "convert"
        super().__init__(
            f"{name} is {actual!r}, which {reader} cannot express: only "
            f"{', '.join(map(repr, values))} {converts}"
        )
        self.name, self.values = name, values
