"""What one question to a model and a file showed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SETTINGS = "settings"
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


def differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], are_equal: Callable[[Any, Any], bool]
) -> Iterator[str]:
    """Yield a sentence for each value that both name and that is not equal."""
    for name in sorted(ours.keys() & theirs.keys()):
        if not are_equal(theirs[name], ours[name]):
            yield f"{name} is {theirs[name]} there, and {ours[name]} here"


def compare_fields(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    are_equal: Callable[[Any, Any], bool],
    cause: str,
) -> Answer:
    """Compare the fields that describe a model, as far as both have them."""
    if wrong := "; ".join(differences(ours, theirs, are_equal)):
        return Answer(SETTINGS, DIFFERS, wrong, cause)
    return Answer(SETTINGS, SAME, counted(len(ours.keys() & theirs.keys()), "field"))
