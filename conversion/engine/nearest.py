"""Suggest formats for a name that is none: a few nearest ones, and the command that lists all."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

SHOWN = 4
LISTING = "`tformer convert formats`"
# Words in names of formats that say nothing about their kin.
COMMON = {"text", "model", "torch", "new", "from"}


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are spelled alike, then those that share a word."""
    known = list(known)
    alike = get_close_matches(name.lower(), known, n=SHOWN)
    wanted = words_of(name)
    kin = [other for other in known if wanted & words_of(other)]
    return list(dict.fromkeys((*alike, *kin)))[:SHOWN]


def words_of(name: str) -> set[str]:
    return set(re.findall(r"[a-z]{2,}", name.lower())) - COMMON


def choices(name: str, known: Iterable[str]) -> str:
    """Return the end of an error: where the formats are listed, and which are nearest to a name."""
    found = " or ".join(nearest(name, known))
    return f"{LISTING} lists them" + (f" - did you mean {found}?" if found else "")


def no_format(name: str, known: Iterable[str]) -> str:
    """Return the error for a name that is no format."""
    return f"there is no format {name!r}: {choices(name, known)}"
