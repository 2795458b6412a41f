"""Print the formats as lines, as blocks, as JSON, and as the page docs/FORMATS.md."""

import json
import textwrap
from collections.abc import Iterable, Iterator

import transformers

from .facts import GROUPS, PROGRAMS, facts, group_of
from .format import OURS
from .refused import REFUSED
from .registry import FORMATS
from .translation import AnyFormat

INTRODUCTION = (
    "What `tformer convert` reads and writes. `tformer convert formats WORD` prints these facts of "
    "the formats that have the word in their name, models or classes, `--json` prints them for a "
    "program.\n\n"
    "An import or an export compares the outputs of both models on a padded batch before the "
    "folder appears. What the other side cannot express is refused by field and value: `only with` "
    "names the fields of their configuration that convert with one value, or with that of another "
    "field, alone. `asks` shows an example of each setting that has to be given where a file lacks "
    "it, `assumes` the defaults of settings that are not given. Fields that matter in training "
    "alone, such as dropout, are carried over where both sides have a name for them.\n\n"
    "Of a file that lacks the head which config.json names, the body is imported; ids beyond the "
    "vocabulary are dropped; both are said. RoBERTa's kin and M2M100 count positions by the "
    "padding id, and hf_tformer by the mask: one between real tokens has another position.\n\n"
    "This page is written by `python -m conversion formats --markdown > docs/FORMATS.md`."
)
PROOFS = {
    "decoders": (
        "Proven for each: logits, hidden states, attention weights, loss and the gradient of every "
        "parameter equal those of transformers on padded batches "
        "(`tests/model/test_parity_decoder.py`); so do the outputs of greedy and of beam search "
        "(`tests/model/test_parity_texts.py`). An import has the same logits, and its export is "
        "the same bits (`tests/conversion/test_conversion.py`).\n\n"
        "A folder is converted with the head that `architectures` names (language model, "
        "sequence or token classification, question answering) or as a body alone "
        "(`tests/conversion/test_conversion_decoder_heads.py`)."
    ),
    "mixtures of experts": (
        "Proven for each: the same as for decoders (`tests/model/test_parity_mixture.py`, "
        "`tests/model/test_parity_texts.py`, `tests/conversion/test_conversion.py`), the balance "
        "loss among it where theirs has one."
    ),
    "encoder-decoders": (
        "Proven for each: the same as for decoders (`tests/model/test_parity_seq2seq.py`, "
        "`tests/model/test_parity_texts.py`, `tests/conversion/test_conversion.py`)."
    ),
    "encoders": (
        "Proven for each head: outputs, hidden states, attention weights, loss and the gradient of "
        "every parameter equal those of transformers (`tests/model/test_parity_encoder.py`). An "
        "import has the same outputs, and its export is the same bits "
        "(`tests/conversion/test_conversion_encoders.py`), for random configurations, too "
        "(`tests/conversion/test_conversion_drawn.py`)."
    ),
    PROGRAMS: (
        "Proven for each: an import has the logits of a reference that is written from the layout "
        "(`conversion/references/`, `tests/conversion/test_conversion_plain.py`). Any other layout "
        "is described by `--rules FILE` ([Contributing](../CONTRIBUTING.md))."
    ),
}
TABLE = ("| name | models | ways | read by | remarks |", "|---|---|---|---|---|")


def as_lines(formats: list[AnyFormat]) -> str:
    """Return one line for each format."""
    width = max(len(format.name) for format in formats)
    lines = []
    for group, members in grouped(formats).items():
        lines.append(f"{group} ({len(members)})")
        lines += [f"  {f.name:{width}}  {ways(f):9}  {f.released}".rstrip() for f in members]
    lines.append("tformer convert formats WORD: all facts of the formats that have the word")
    return "\n".join(lines)


def as_blocks(formats: list[AnyFormat]) -> str:
    """Return all facts of a few formats."""
    return "\n\n".join("\n".join(block(format)) for format in formats)


def as_json(formats: list[AnyFormat]) -> str:
    return json.dumps([facts(format) for format in formats], indent=2)


def as_page(formats: list[AnyFormat]) -> str:
    parts = ["# Formats", INTRODUCTION]
    for group, members in grouped(formats).items():
        parts += [f"## {group[0].upper()}{group[1:]} ({len(members)})", PROOFS[group]]
        parts.append("\n".join((*TABLE, *map(row, members))))
    parts += ["## What transformers has", coverage()]
    return "\n\n".join(parts)


MAPPINGS = {  # what the models of one of transformers' tables are for
    "write texts": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "find masked tokens": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "answer a source": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
}


def coverage() -> str:
    """Return how many model types of transformers are read, refused by name, or unknown."""
    lines = ["| models that | types | read | refused by name | unknown |", "|---|---|---|---|---|"]
    for purpose, mapping in MAPPINGS.items():
        kinds = types_of(mapping)
        counts = (kinds & FORMATS.keys(), kinds & REFUSED.keys(), unknown_types(kinds))
        lines.append(f"| {purpose} | {len(kinds)} | {' | '.join(str(len(c)) for c in counts)} |")
    return (
        f"Of the model types of transformers {transformers.__version__}; a folder of one that is "
        "refused is answered with the reason and with formats that serve its purpose.\n\n"
        + "\n".join(lines)
    )


def types_of(mapping: str) -> set[str]:
    """Return the model types of a table of transformers' Auto classes, ours left out."""
    from transformers.models.auto import (
        modeling_auto,  # seconds that a list of formats can do without
    )

    return set(getattr(modeling_auto, mapping)) - OURS.keys()


def unknown_types(kinds: set[str]) -> set[str]:
    return kinds - FORMATS.keys() - REFUSED.keys()


def grouped(formats: Iterable[AnyFormat]) -> dict[str, list[AnyFormat]]:
    found = {group: [format for format in formats if group_of(format) == group] for group in GROUPS}
    return {group: members for group, members in found.items() if members}


def ways(format: AnyFormat) -> str:
    return "both ways" if format.config_to_theirs else "import"


def block(format: AnyFormat) -> Iterator[str]:
    yield f"{format.name} ({group_of(format)}, {ways(format)})"
    known = {"models": format.released, "read by": format.remark, **remarks(format)}
    for title, words in known.items():
        first, others = f"  {title:11}", " " * 13
        yield textwrap.fill(words, 100, initial_indent=first, subsequent_indent=others)


def row(format: AnyFormat) -> str:
    rest = "; ".join(f"{title} {words}" for title, words in remarks(format, "`").items())
    return f"| `{format.name}` | {format.released} | {ways(format)} | {format.remark} | {rest} |"


def remarks(format: AnyFormat, quote: str = "") -> dict[str, str]:
    """Return what a format asks, assumes, leaves out and refuses, names and values in quotes."""
    known = facts(format)

    def pairs(key: str, before: str = "") -> str:
        return ", ".join(f"{quote}{before}{n}={v}{quote}" for n, v in known[key].items())

    rows = {
        "asks": pairs("asks", "--set "),
        "assumes": pairs("assumes"),
        "leaves out": "; ".join(known["leaves_out"]),
        "only with": pairs("only_with"),
    }
    return {title: words for title, words in rows.items() if words}
