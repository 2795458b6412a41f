"""The errors that a conversion raises on purpose."""

from hf_tformer.path_safety import printable


class ConversionError(ValueError):
    """One sentence that names what cannot be converted, and the remedy."""

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))  # files and values may have any name


class UnexpressibleError(ConversionError):
    """A field has a value that the other side cannot express; `values` are those that convert."""

    def __init__(
        self, name: str, actual: object, format_name: str, values: tuple[object, ...]
    ) -> None:
        converts = "converts" if len(values) == 1 else "convert"
        super().__init__(
            f"{name} is {actual!r}, which {format_name} cannot express: only "
            f"{', '.join(map(repr, values))} {converts}"
        )
        self.name, self.values = name, values
