"""The section on a move in the model card: what opens the folder now, and what proves it."""

from pathlib import Path

import hf_tformer

from .rehomed import Rehomed

TITLE = "## Where this folder comes from"
CARD_BYTES = 2**20


def write_card(staged: Path, source: Path, done: Rehomed) -> None:
    """Write the card of the source, with a section on the move at its end."""
    old = source / "README.md"
    small = old.is_file() and old.stat().st_size <= CARD_BYTES
    text = old.read_text(encoding="utf-8", errors="replace") if small else f"# {done.folder.name}\n"
    (staged / "README.md").write_text(
        f"{text.rstrip()}\n\n{section(source, done)}", encoding="utf-8"
    )


def section(source: Path, done: Rehomed) -> str:
    tool = f"hf_tformer {hf_tformer.__version__}"
    proof = f"Proven: {done.proof}." if done.is_proven else f"**Not proven**: {done.not_proven}."
    lines = [
        TITLE,
        "",
        f"Made from `{source.name}`, whose code was of others, by {tool}. It opens as "
        f"{done.became}. {proof}",
        *("", *(f"- {note}" for note in (*done.repairs, *done.notes))),
    ]
    if done.diff:
        lines += ["", "What was changed in its code:", "", "```diff", done.diff, "```"]
    return "\n".join(lines) + "\n"
