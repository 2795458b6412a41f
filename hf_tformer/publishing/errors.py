"""The one error that publishing raises on purpose."""

from ..path_safety import printable


class PublishError(Exception):
    """What went wrong, in one sentence, and whether anything changed."""

    def __init__(self, sentence: str):
        super().__init__(printable(sentence))  # it names files and values that others chose
