"""BART: Marian's layers, learned positions that begin at two, a norm after the embeddings.

PLBart is the same. Without decoder inputs it makes them as mBART does (mbart.py).
"""

from ...engine.aliases import Config, Fields
from ...engine.format import SEQ2SEQ, Format, require
from ...engine.rules import Rule, linear
from ...engine.transforms import DropRows, FirstOfTwo
from .marian import LAYERS_AND_HEAD, ZERO_IF_ABSENT, shared_fields_to_ours, shared_fields_to_theirs

STACKS = ("model.encoder", "model.decoder")
LAYERS_AND_TABLES = (
    *LAYERS_AND_HEAD,
    # Without tying, their model makes the shared table too and never reads it.
    Rule(
        "model.encoder.embed_tokens.weight",
        ("model.encoder.embed_tokens.weight", "model.shared.weight"),
        FirstOfTwo(),
    ),
)
RULES = (
    *LAYERS_AND_TABLES,
    *(
        rule
        for stack in STACKS
        for rule in (
            Rule(f"{stack}.positions.weight", f"{stack}.embed_positions.weight", DropRows(2)),
            *linear(f"{stack}.embed_norm", f"{stack}.layernorm_embedding"),
        )
    ),
)
IGNORED = {
    "model.encoder.version": "a number that fairseq left behind",
    "model.decoder.version": "a number that fairseq left behind",
}
EMBEDDINGS = {"position_embedding_type": "learned", "embedding_norm": True}


def one_vocabulary_to_ours(theirs: Config, layout: Fields) -> Fields:
    """What holds for BART's kin: one vocabulary, and one table for all that read it, or none."""
    return {
        **shared_fields_to_ours(theirs),
        **layout,
        "vocab_size": theirs.vocab_size,
        "share_encoder_decoder_embeddings": theirs.tie_word_embeddings,
    }


def one_vocabulary_to_theirs(ours: Config, reader: str, layout: Fields) -> Fields:
    fields = shared_fields_to_theirs(ours, reader, **layout)
    require(ours, reader, share_encoder_decoder_embeddings=ours.tie_word_embeddings)
    if ours.source_vocab_size != ours.vocab_size:
        require(ours, reader, source_vocab_size=None)
    return {**fields, "vocab_size": ours.vocab_size}


def to_ours(theirs: Config) -> Fields:
    return one_vocabulary_to_ours(theirs, EMBEDDINGS)


def to_theirs(ours: Config) -> Fields:
    return one_vocabulary_to_theirs(ours, "BART", EMBEDDINGS)


def plbart_to_theirs(ours: Config) -> Fields:
    return one_vocabulary_to_theirs(ours, "PLBart", EMBEDDINGS)


FORMATS = (
    Format(
        "bart",
        RULES,
        to_ours,
        to_theirs,
        ("BartConfig", "BartForConditionalGeneration"),
        SEQ2SEQ,
        IGNORED,
        ZERO_IF_ABSENT,
        released="BART, BART CNN, BART XSum, DistilBART",
    ),
    Format(
        "plbart",
        RULES,
        to_ours,
        plbart_to_theirs,
        ("PLBartConfig", "PLBartForConditionalGeneration"),
        SEQ2SEQ,
        IGNORED,
        ZERO_IF_ABSENT,
        released="PLBart",
    ),
)
