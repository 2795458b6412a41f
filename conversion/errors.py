"""The one error that a conversion raises on purpose."""


class ConversionError(ValueError):
    """What cannot be converted, and what to do about it, in one sentence."""
