"""GLM-4, Helium, Ernie 4.5, Cohere: Llama whose rotary positions pair neighbouring dimensions.

Cohere puts attention beside the MLP, and the full-attention layers of Cohere 2 have no positions.
Command-R+ has a norm for each head and is refused.
"""

from dataclasses import replace

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import BIASES, require, require_ids, same, windows, without
from ...engine.rotations import full_rotation
from ...engine.rules import replaced, weights
from ..shared import (
    FUSED_GATE,
    LAYER,
    LAYER_NORM_FIELDS,
    LLAMA_FIELDS,
    LLAMA_FIXED,
    LLAMA_FIXED_ANY_WINDOW,
    NEIGHBOUR_RULES,
    ONE_BIAS_FOR_ALL,
    ONE_BIAS_FOR_ATTENTION,
    decoder_format,
    llama_field_map,
)

GLM_RULES = replaced(NEIGHBOUR_RULES, FUSED_GATE)
# Of April 2025: a norm behind each branch, too.
GLM4_RULES = (
    *GLM_RULES,
    *weights(
        LAYER,
        LAYER,
        {"self_attn_output": "post_self_attn_layernorm", "mlp_output": "post_mlp_layernorm"},
    ),
)
UNBIASED_OUTPUT = {**LLAMA_FIXED, "attention_output_bias": False}
GLM = llama_field_map(
    "GLM",
    "attention_bias",
    fixed={**UNBIASED_OUTPUT, "mlp_bias": False},
    equal={},
    rotation=lambda config, format_name: dict(config.rope_parameters),
)
GLM4 = replace(GLM, fixed={**GLM.fixed, "norm_position": "both"})
HELIUM = llama_field_map("Helium", "attention_bias", "mlp_bias", fixed=UNBIASED_OUTPUT, equal={})
ERNIE = FieldMap(
    "Ernie",
    {**without(LLAMA_FIELDS, "attention_dropout"), "use_bias": "attention_bias"},
    LLAMA_FIXED,
    ONE_BIAS_FOR_ALL,
    full_rotation,
)
COHERE = FieldMap(
    "Cohere",
    {**LAYER_NORM_FIELDS, **same("logit_scale", "attention_bias")},
    {
        **without(LLAMA_FIXED_ANY_WINDOW, "logit_scale"),
        "norm_type": "layernorm_unbiased",
        "parallel_residual": "shared",
        "qk_norm": False,
        "mlp_bias": False,
    },
    ONE_BIAS_FOR_ATTENTION,
    full_rotation,
)


def glm_to_theirs(ours: Config, fields: FieldMap = GLM) -> Fields:
    theirs = fields.to_theirs(ours)
    require_ids(ours, fields.format_name, "eos_token_id")
    # Without this field GLM rotates half of each head.
    return {**theirs, "rope_parameters": {"partial_rotary_factor": 1.0, **ours.rope_parameters}}


def helium_to_theirs(ours: Config) -> Fields:
    fields = HELIUM.to_theirs(ours)
    # Its output projection is square.
    require(ours, "Helium", head_dim=ours.hidden_size / ours.num_attention_heads)
    return fields


def ernie_to_ours(theirs: Config) -> Fields:
    return {**ERNIE.to_ours(theirs), **dict.fromkeys(BIASES, bool(theirs.use_bias))}


def cohere_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", use_qk_norm=False)
    return {**COHERE.to_ours(theirs), "sliding_window": None}


def cohere_to_theirs(ours: Config) -> Fields:
    require(ours, "Cohere", sliding_window=None)
    return COHERE.to_theirs(ours)


def cohere2_to_ours(theirs: Config) -> Fields:
    rotated = [int(kind == "sliding_attention") for kind in theirs.layer_types]
    return {
        **COHERE.to_ours(theirs),
        "sliding_window": theirs.sliding_window,
        "layer_types": theirs.layer_types,
        "no_rope_layers": None if all(rotated) else rotated,
    }


def cohere2_to_theirs(ours: Config) -> Fields:
    return {**COHERE.to_theirs(ours), **windows(ours)}


FORMATS = (
    decoder_format("glm", "Glm", GLM.to_ours, glm_to_theirs, "GLM-4 9B, GLM-Edge", GLM_RULES),
    decoder_format(
        "glm4",
        "Glm4",
        GLM4.to_ours,
        lambda ours: glm_to_theirs(ours, GLM4),
        "GLM-4-0414",
        GLM4_RULES,
    ),
    decoder_format(
        "helium", "Helium", HELIUM.to_ours, helium_to_theirs, "Helium 1", NEIGHBOUR_RULES
    ),
    decoder_format(
        "ernie4_5", "Ernie4_5", ernie_to_ours, ERNIE.to_theirs, "ERNIE 4.5 0.3B", NEIGHBOUR_RULES
    ),
    decoder_format(
        "cohere", "Cohere", cohere_to_ours, cohere_to_theirs, "Command-R", NEIGHBOUR_RULES
    ),
    decoder_format(
        "cohere2",
        "Cohere2",
        cohere2_to_ours,
        cohere2_to_theirs,
        "Command-R7B, Command-A",
        NEIGHBOUR_RULES,
    ),
)
