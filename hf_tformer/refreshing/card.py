"""The parts of a model card that name code: only a card that `publish` wrote is changed."""

import re
from pathlib import Path

from .. import __version__
from ..publishing.card import table

HASHES = re.compile(
    r"(?<=\| file \| SHA-256 \|\n\|---\|---\|\n)(?:\| `[^`\n]+\.py` \| `[0-9a-f]{64}` \|\n?)+"
)
PINNED = re.compile(r'(?P<before>from_pretrained\("[^"\n]+", revision=")(?P<name>[^"\n]+)(?=")')
MADE_WITH = re.compile(
    r"made with hf_tformer (?P<version>\d[\w.+-]*\w)(?:, its code renewed with \d[\w.+-]*\w)?"
)


def read(file: Path) -> str:
    """Return the text of a card; bytes that are no UTF-8 are replaced."""
    return file.read_bytes().decode("utf-8", errors="replace")


def is_ours(card: str) -> bool:
    """Return whether a card has the parts that `publish` writes, each as often."""
    parts = (HASHES.findall(card), PINNED.findall(card), MADE_WITH.findall(card))
    whole = "\N{REPLACEMENT CHARACTER}" not in card
    return whole and len(parts[0]) == 1 and min(len(parts[1]), len(parts[2])) >= 1


def hashes_of(card: str) -> dict[str, str]:
    """Return the SHA-256 of each file in the table of a card."""
    rows = next(HASHES.finditer(card))[0]
    return dict(re.findall(r"\| `([^`\n]+\.py)` \| `([0-9a-f]{64})` \|", rows))


def with_hashes(card: str, hashes: dict[str, str]) -> str:
    """Return the card with these files in its table, and the version that they come from."""
    rows = table((f"`{name}`", f"`{digest}`") for name, digest in sorted(hashes.items()))
    made = next(MADE_WITH.finditer(card))
    sentence = f"made with hf_tformer {made['version']}"
    if made["version"] != __version__:
        sentence += f", its code renewed with {__version__}"
    card = card[: made.start()] + sentence + card[made.end() :]
    return HASHES.sub(lambda _: rows + "\n", card)


def with_revision(card: str, revision: str) -> str:
    """Return the card with this revision in its programs."""
    return PINNED.sub(lambda found: found["before"] + revision, card)


def pins_a_commit(card: str) -> bool:
    return all(re.fullmatch(r"[0-9a-f]{40}", name) for _, name in PINNED.findall(card))
