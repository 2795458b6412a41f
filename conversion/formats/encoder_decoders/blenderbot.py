"""Blenderbot: learned positions from the first row on, and mBART's order of norms."""

from ...engine.aliases import Config, Fields
from ...engine.format import SEQ2SEQ, Format
from ...engine.rules import Rule
from .bart import LAYERS_AND_TABLES, STACKS, one_vocabulary_to_ours, one_vocabulary_to_theirs
from .marian import ZERO_IF_ABSENT
from .mbart import LAST_NORMS, NORMS_FIRST

RULES = (
    *LAYERS_AND_TABLES,
    *LAST_NORMS,
    *(Rule(f"{stack}.positions.weight", f"{stack}.embed_positions.weight") for stack in STACKS),
)
LAYOUT = {"position_embedding_type": "learned", "embedding_norm": False, **NORMS_FIRST}


def to_ours(theirs: Config) -> Fields:
    return one_vocabulary_to_ours(theirs, LAYOUT)


def to_theirs(ours: Config) -> Fields:
    fields = one_vocabulary_to_theirs(ours, "Blenderbot", LAYOUT)
    return {**fields, "encoder_no_repeat_ngram_size": 0}  # a matter of generation_config.json


FORMATS = (
    Format(
        "blenderbot",
        RULES,
        to_ours,
        to_theirs,
        ("BlenderbotConfig", "BlenderbotForConditionalGeneration"),
        SEQ2SEQ,
        zero_if_absent=ZERO_IF_ABSENT,
        released="BlenderBot 400M, 1B and 3B",
    ),
)
