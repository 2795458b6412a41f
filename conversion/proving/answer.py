"""What one question to a model and a file showed."""

from dataclasses import dataclass

SAME, NEAR, DIFFERS, UNASKED = "same", "near", "differs", "not asked"


@dataclass(frozen=True)
class Answer:
    """The verdict of a question, what was seen, and what such a difference usually means.

    `near` is for few bits: the answers are alike, and more cannot be said of them.
    """

    question: str
    verdict: str
    seen: str
    cause: str = ""


def unasked(question: str, why: str) -> Answer:
    return Answer(question, UNASKED, why)


def counted(count: int, what: str) -> str:
    """Return a number of things in words: 1 text, 1,024 texts."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
