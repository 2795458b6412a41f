"""EuroBERT: Llama that attends to both sides, with plain heads."""

from dataclasses import replace

from ...engine.aliases import Config, Fields
from ...engine.format import carry, require
from ...engine.heads import TEXTS, Head
from ...engine.rotations import full_rotation
from ...engine.rules import linear, omitted
from ..shared import LLAMA_IGNORED, LLAMA_RULES
from ..shared_encoders import SHARED_FIELDS, encoder_format, heads_of, more_ids, text_classifier

FIELDS = (
    *SHARED_FIELDS,
    "intermediate_size",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "attention_bias",
    "attention_dropout",
    "mlp_bias",
)
FIXED = {
    "position_embedding_type": "rotary",
    "sliding_window": None,
    "norm_type": "rmsnorm",
    "norm_position": "pre",
    "final_norm": True,
    "mlp_type": "gated",
    "head_act": None,
    "classifier_act": "gelu",
    "classifier_norm": False,
    "head_bias": True,
}
# theirs → ours. Models that classify nothing may have "late", which is a mean of logits.
POOLINGS = {"bos": "cls", "mean": "mean", "late": "mean"}
CONVERTED = ("bos", "mean")


def to_ours(theirs: Config) -> Fields:
    return {
        **FIXED,
        **carry(theirs, FIELDS),
        **more_ids(theirs),
        "attention_output_bias": theirs.attention_bias,
        "lm_head_bias": theirs.mlp_bias,
        "classifier_pooling": POOLINGS.get(theirs.classifier_pooling, "mean"),
        "rope_parameters": full_rotation(theirs, "EuroBERT"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "EuroBERT", position_embedding_type="rotary", sliding_window=None)
    return {
        **carry(ours, FIELDS),
        **more_ids(ours),
        "classifier_pooling": "bos" if ours.classifier_pooling == "cls" else "mean",
        "rope_parameters": full_rotation(ours, "EuroBERT"),
    }


def heads() -> dict[str, Head]:
    """Return the heads: transformers has none for questions, and two poolings that ours has too."""
    texts = text_classifier("dense", "classifier")
    found = heads_of("EuroBert", linear("lm_head", "lm_head"), texts, answers=None)
    return {
        name: replace(head, choices={"classifier_pooling": CONVERTED})
        if head.ours == TEXTS
        else head
        for name, head in found.items()
    }


FORMATS = (
    encoder_format(
        "eurobert",
        "EuroBert",
        "model",
        omitted(LLAMA_RULES, "lm_head.weight"),
        to_ours,
        to_theirs,
        heads(),
        "EuroBERT 210M to 2.1B",
        LLAMA_IGNORED,
    ),
)
