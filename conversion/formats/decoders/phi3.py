"""Phi-3 and Phi-4: Llama with query, key and value in one tensor, gate and up in another.

With the longrope type, generate of theirs reads a text anew when it grows beyond the original
length, for other frequencies hold from there. Ours goes on with the cache that it has.
"""

from ...engine.aliases import Config, Fields
from ...engine.format import carry, plain_attention_scale, require
from ...engine.rotations import one_rotation
from ...engine.rules import Rule
from ...engine.transforms import Split, SplitHeads
from .llama import (
    ALL_OF_THEM,
    ATTENTION,
    MLP,
    RULES,
    SAME_FIELDS,
    head_size,
    llama_format,
    require_one_kind_of_layer,
)
from .llama import FIXED as FIXED_OF_NAMES

QUERY_KEY_VALUE = tuple(f"{ATTENTION}.{x}_proj.weight" for x in "qkv")
GATE_AND_UP = tuple(f"{MLP}.{x}_proj.weight" for x in ("gate", "up"))
FUSED_HEADS = Rule(QUERY_KEY_VALUE, f"{ATTENTION}.qkv_proj.weight", SplitHeads())
FUSED_GATE = Rule(GATE_AND_UP, f"{MLP}.gate_up_proj.weight", Split(2))
PHI3_RULES = (
    *(rule for rule in RULES if rule.ours not in (*QUERY_KEY_VALUE, *GATE_AND_UP)),
    FUSED_HEADS,
    FUSED_GATE,
)
FIXED = {**ALL_OF_THEM, **FIXED_OF_NAMES["mistral"]}  # no biases, perhaps a window


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", layer_types=None)  # transformers' Phi-3 does not read them
    return {
        **carry(theirs, (*SAME_FIELDS, "sliding_window")),
        **FIXED,
        "head_dim": head_size(theirs),
        "dropout": theirs.resid_pdrop,
        "rope_parameters": dict(theirs.rope_parameters),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "Phi-3", **FIXED)
    plain_attention_scale(ours, "Phi-3")
    require_one_kind_of_layer(ours, "Phi-3")
    rope = one_rotation(ours, "Phi-3")
    fields = carry(ours, (*SAME_FIELDS, "sliding_window", "head_dim"))
    if "original_max_position_embeddings" in rope:  # theirs reads it beside the others
        fields["original_max_position_embeddings"] = rope["original_max_position_embeddings"]
    return {
        **fields,
        "resid_pdrop": ours.dropout,
        "embd_pdrop": ours.dropout,
        "rope_parameters": rope,
    }


FORMATS = (
    llama_format(
        "phi3",
        "Phi3",
        to_ours,
        to_theirs,
        PHI3_RULES,
        "Phi-3 mini and medium, Phi-3.5 mini, Phi-4, Phi-4 mini",
    ),
)
