"""M2M100 and NLLB: mBART's layers, with sinusoids that are counted from behind the id of padding.

The language that a text begins with is a matter of generation_config.json, or of each call.
"""

from ...engine.aliases import Config, Fields
from ...engine.format import SEQ2SEQ, Format
from . import bart
from .bart import LAYERS_AND_TABLES, STACKS, one_vocabulary_to_ours, one_vocabulary_to_theirs
from .mbart import LAST_NORMS, NORMS_FIRST

COMPUTED = "sinusoids, computed where they are needed"
IGNORED = {
    **bart.IGNORED,
    **dict.fromkeys((f"{stack}.embed_positions.weights" for stack in STACKS), COMPUTED),
}
FAIRSEQ = {
    "position_embedding_type": "sinusoidal",
    "sinusoidal_layout": "fairseq",
    "embedding_norm": False,
}
LAYOUT = {**FAIRSEQ, **NORMS_FIRST, "lm_head_bias": False}


def to_ours(theirs: Config) -> Fields:
    return one_vocabulary_to_ours(theirs, LAYOUT)


def to_theirs(ours: Config) -> Fields:
    return one_vocabulary_to_theirs(ours, "M2M100", LAYOUT)


FORMATS = (
    Format(
        "m2m_100",
        (*LAYERS_AND_TABLES, *LAST_NORMS),
        to_ours,
        to_theirs,
        ("M2M100Config", "M2M100ForConditionalGeneration"),
        SEQ2SEQ,
        IGNORED,
        released="M2M100, NLLB-200",
    ),
)
