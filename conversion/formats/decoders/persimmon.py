"""Persimmon: layers as in GPT-NeoX, one branch after the other, and LayerNorm on each head."""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import require_one_of, without
from ...engine.rotations import part_of_heads
from ...engine.rules import Rule, linear, linears
from ..shared import (
    LAYER,
    LAYER_NORM_FIELDS,
    NEOX_FIXED,
    NO_GROUPS,
    decoder_format,
    megatron_branches,
    refuse_other_head_sizes,
    with_its_part,
)

RULES = (
    Rule("model.embed_tokens.weight", "model.embed_tokens.weight"),
    *megatron_branches(LAYER, "self_attn"),
    *linears(
        LAYER,
        LAYER,
        {
            "self_attn_norm": "input_layernorm",
            "mlp_norm": "post_attention_layernorm",
            "self_attn.q_norm": "self_attn.q_layernorm",
            "self_attn.k_norm": "self_attn.k_layernorm",
        },
    ),
    *linear("model.norm", "model.final_layernorm"),
)
FIELDS = FieldMap(
    "Persimmon",
    {
        **without(LAYER_NORM_FIELDS, "num_key_value_heads"),
        "qk_layernorm": "qk_norm",
        "hidden_dropout": "dropout",
    },
    {
        **without(NEOX_FIXED, "qk_norm"),
        **dict.fromkeys(("attention_bias", "attention_output_bias", "mlp_bias"), True),
    },
    NO_GROUPS,
    part_of_heads,
    has_head_dim=False,
)


def to_ours(theirs: Config) -> Fields:
    refuse_other_head_sizes(theirs)
    return FIELDS.to_ours(theirs)


def to_theirs(ours: Config) -> Fields:
    require_one_of(ours, "Persimmon", qk_norm=(True, False))
    return with_its_part(FIELDS.to_theirs(ours))


FORMATS = (decoder_format("persimmon", "Persimmon", to_ours, to_theirs, "Persimmon 8B", RULES, {}),)
