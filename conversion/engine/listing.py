"""The formats as lines, as blocks, as JSON, and as the page docs/FORMATS.md."""

import json
import textwrap
from collections.abc import Iterable, Iterator

from .facts import GROUPS, PROGRAMS, facts, group_of
from .translation import AnyFormat

INTRODUCTION = (
    "What `tformer convert` reads and writes. `tformer convert formats WORD` says the same of the "
    "formats that have the word in their name, models or classes, and `--json` says it to a "
    "program.\n\n"
    "An import or an export compares what both models answer to a padded batch before anything is "
    "there. What the other side cannot express is refused by field and value: `only with` names "
    "the fields of their configuration that convert with one value alone, or with that of another "
    "field. `asks` shows by an example what has to be said where a file does not say it, "
    "`assumes` what is taken where nobody does. What matters in training alone, such as dropout, "
    "is carried over where both sides have a name for it.\n\n"
    "This page is written by `python -m conversion formats --markdown > docs/FORMATS.md`."
)
PROOFS = {
    "decoders": (
        "Proven for each: logits, hidden states, attention weights, loss and the gradient of every "
        "parameter equal those of transformers on padded batches "
        "(`tests/model/test_parity_decoder.py`); so do greedy texts and those of beams "
        "(`tests/model/test_parity_texts.py`). An import has the same logits, and its export is "
        "the same bits (`tests/conversion/test_conversion.py`)."
    ),
    "encoder-decoders": (
        "Proven for each: the same as for decoders (`tests/model/test_parity_seq2seq.py`, "
        "`tests/model/test_parity_texts.py`, `tests/conversion/test_conversion.py`)."
    ),
    "encoders": (
        "Proven for each head: answers, hidden states, attention weights, loss and the gradient of "
        "every parameter equal those of transformers (`tests/model/test_parity_encoder.py`). An "
        "import answers the same, and its export is the same bits "
        "(`tests/conversion/test_conversion_encoders.py`), for random configurations, too "
        "(`tests/conversion/test_conversion_drawn.py`)."
    ),
    PROGRAMS: (
        "Proven for each: an import has the logits of a reference that is written from the layout "
        "(`conversion/references/`, `tests/conversion/test_conversion_plain.py`). Any other layout "
        "is described by `--rules FILE` ([Contributing](../CONTRIBUTING.md))."
    ),
}
TABLE = ("| name | models | ways | read by | what to know |", "|---|---|---|---|---|")


def as_lines(forms: list[AnyFormat]) -> str:
    """One line for each format."""
    width = max(len(form.name) for form in forms)
    lines = []
    for group, members in grouped(forms).items():
        lines.append(f"{group} ({len(members)})")
        lines += [f"  {f.name:{width}}  {ways(f):9}  {f.released}".rstrip() for f in members]
    lines.append("tformer convert formats WORD: all that is known of those that have the word")
    return "\n".join(lines)


def as_blocks(forms: list[AnyFormat]) -> str:
    """All that is known of a few."""
    return "\n\n".join("\n".join(block(form)) for form in forms)


def as_json(forms: list[AnyFormat]) -> str:
    return json.dumps([facts(form) for form in forms], indent=2)


def as_page(forms: list[AnyFormat]) -> str:
    parts = ["# Formats", INTRODUCTION]
    for group, members in grouped(forms).items():
        parts += [f"## {group[0].upper()}{group[1:]} ({len(members)})", PROOFS[group]]
        parts.append("\n".join((*TABLE, *map(row, members))))
    return "\n\n".join(parts)


def grouped(forms: Iterable[AnyFormat]) -> dict[str, list[AnyFormat]]:
    found = {group: [form for form in forms if group_of(form) == group] for group in GROUPS}
    return {group: members for group, members in found.items() if members}


def ways(form: AnyFormat) -> str:
    return "both ways" if form.config_to_theirs else "import"


def block(form: AnyFormat) -> Iterator[str]:
    yield f"{form.name} ({group_of(form)}, {ways(form)})"
    for title, words in {"models": form.released, "read by": form.remark, **remarks(form)}.items():
        first, others = f"  {title:11}", " " * 13
        yield textwrap.fill(words, 100, initial_indent=first, subsequent_indent=others)


def row(form: AnyFormat) -> str:
    rest = "; ".join(f"{title} {words}" for title, words in remarks(form, "`").items())
    return f"| `{form.name}` | {form.released} | {ways(form)} | {form.remark} | {rest} |"


def remarks(form: AnyFormat, quote: str = "") -> dict[str, str]:
    """What a format asks, assumes, leaves out and refuses; names and values between quotes."""
    known = facts(form)

    def pairs(key: str, before: str = "") -> str:
        return ", ".join(f"{quote}{before}{n}={v}{quote}" for n, v in known[key].items())

    rows = {
        "asks": pairs("asks", "--set "),
        "assumes": pairs("assumes"),
        "leaves out": "; ".join(known["leaves_out"]),
        "only with": pairs("only_with"),
    }
    return {title: words for title, words in rows.items() if words}
