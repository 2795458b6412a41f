"""Phi-1 to Phi-2, with attention beside the MLP and biases everywhere; Phi-3 and Phi-4, like Llama.

With the longrope type, generate() of transformers' Phi-3 computes a sequence anew when it grows
beyond the original length, because other frequencies hold from there. Ours keeps its cache.
"""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import BIASES, require, require_one_kind_of_layer, same
from ...engine.rotations import one_rotation, part_of_heads
from ...engine.rules import Rule, linear, linears, replaced
from ...engine.transforms import SplitHeads
from ..shared import (
    EMBEDDINGS,
    FUSED_GATE,
    LAYER,
    LAYER_NORM_FIELDS,
    LLAMA_FIELDS,
    LLAMA_FIXED_ANY_WINDOW,
    LLAMA_RULES,
    NEOX_FIXED,
    QKV,
    decoder_format,
    with_its_part,
)

MODULES = {
    "self_attn_norm": "input_layernorm",
    **same(*QKV),
    "self_attn.o_proj": "self_attn.dense",
    "mlp.up_proj": "mlp.fc1",
    "mlp.down_proj": "mlp.fc2",
}
PHI_RULES = (
    EMBEDDINGS,
    *linears(LAYER, LAYER, MODULES),
    *linear("model.norm", "model.final_layernorm"),
    *linear("lm_head", "lm_head"),
)
PHI3_RULES = replaced(
    LLAMA_RULES,
    Rule(
        tuple(f"{LAYER}.{name}.weight" for name in QKV),
        f"{LAYER}.self_attn.qkv_proj.weight",
        SplitHeads(),
    ),
    FUSED_GATE,
)
PHI = FieldMap(
    "Phi",
    {**LAYER_NORM_FIELDS, "resid_pdrop": "dropout"},
    {**NEOX_FIXED, "parallel_residual": "shared", **dict.fromkeys((*BIASES, "lm_head_bias"), True)},
    rotation=part_of_heads,
)
PHI3 = FieldMap(
    "Phi-3",
    {**LLAMA_FIELDS, **same("sliding_window"), "resid_pdrop": "dropout"},
    {**LLAMA_FIXED_ANY_WINDOW, "qk_norm": False, **dict.fromkeys(BIASES, False)},
    rotation=one_rotation,
)


def phi_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", qk_layernorm=False)
    return PHI.to_ours(theirs)


def phi_to_theirs(ours: Config) -> Fields:
    return {**with_its_part(PHI.to_theirs(ours)), "embd_pdrop": ours.dropout}


def phi3_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", layer_types=None)  # transformers' Phi-3 does not read them
    return PHI3.to_ours(theirs)


def phi3_to_theirs(ours: Config) -> Fields:
    fields = {**PHI3.to_theirs(ours), "embd_pdrop": ours.dropout}
    require_one_kind_of_layer(ours, "Phi-3")
    original = "original_max_position_embeddings"
    if original in fields["rope_parameters"]:  # theirs reads it beside the others
        fields[original] = fields["rope_parameters"][original]
    return fields


FORMATS = (
    decoder_format(
        "phi3",
        "Phi3",
        phi3_to_ours,
        phi3_to_theirs,
        "Phi-3 mini and medium, Phi-3.5 mini, Phi-4, Phi-4 mini",
        PHI3_RULES,
    ),
    decoder_format("phi", "Phi", phi_to_ours, phi_to_theirs, "Phi-1, Phi-1.5, Phi-2", PHI_RULES),
)
