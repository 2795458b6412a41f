"""mBART: the norms come first in each layer, and one more at the end of each stack.

Without decoder inputs their models take the last token of each text of labels to start with, the
language or the end; ours begins with decoder_start_token_id. The losses are equal where that is the
same token, or where decoder_input_ids are given.
"""

from ...engine.aliases import Config, Fields
from ...engine.format import SEQ2SEQ, Format
from ...engine.rules import linear
from . import bart
from .bart import IGNORED, STACKS, one_vocabulary_to_ours, one_vocabulary_to_theirs
from .marian import ZERO_IF_ABSENT

NORMS_FIRST = {"norm_position": "pre", "final_norm": True}
LAST_NORMS = tuple(
    rule for stack in STACKS for rule in linear(f"{stack}.norm", f"{stack}.layer_norm")
)
LAYOUT = {**bart.EMBEDDINGS, **NORMS_FIRST}


def to_ours(theirs: Config) -> Fields:
    return one_vocabulary_to_ours(theirs, LAYOUT)


def to_theirs(ours: Config) -> Fields:
    return one_vocabulary_to_theirs(ours, "mBART", LAYOUT)


FORMATS = (
    Format(
        "mbart",
        (*bart.RULES, *LAST_NORMS),
        to_ours,
        to_theirs,
        ("MBartConfig", "MBartForConditionalGeneration"),
        SEQ2SEQ,
        IGNORED,
        ZERO_IF_ABSENT,
        released="mBART 25, mBART 50",
    ),
)
