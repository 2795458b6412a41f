"""PEGASUS: Marian's sinusoids, stored in the file, and mBART's order of norms."""

from ...engine.aliases import Config, Fields
from ...engine.format import SEQ2SEQ, Format
from ...engine.rules import Rule
from ...engine.transforms import WithSinusoids
from .bart import LAYERS_AND_TABLES, STACKS, one_vocabulary_to_ours, one_vocabulary_to_theirs
from .marian import POSITIONS, ZERO_IF_ABSENT
from .mbart import NORMS_FIRST

TABLES = {stack: f"{stack}.embed_positions.weight" for stack in STACKS}
RULES = (
    *LAYERS_AND_TABLES,
    *(
        rule
        for stack, table in TABLES.items()
        for rule in (
            # A table has no tensor of ours to come from; each stack has one last norm.
            Rule(f"{stack}.norm.weight", (f"{stack}.layer_norm.weight", table), WithSinusoids()),
            Rule(f"{stack}.norm.bias", f"{stack}.layer_norm.bias"),
        )
    ),
)
LAYOUT = {**POSITIONS, **NORMS_FIRST}


def to_ours(theirs: Config) -> Fields:
    return one_vocabulary_to_ours(theirs, LAYOUT)


def to_theirs(ours: Config) -> Fields:
    return one_vocabulary_to_theirs(ours, "PEGASUS", LAYOUT)


FORMATS = (
    Format(
        "pegasus",
        RULES,
        to_ours,
        to_theirs,
        ("PegasusConfig", "PegasusForConditionalGeneration"),
        SEQ2SEQ,
        zero_if_absent=ZERO_IF_ABSENT,
        sinusoids=tuple(TABLES.values()),
        released="PEGASUS (XSum, CNN/DailyMail and its siblings)",
    ),
)
