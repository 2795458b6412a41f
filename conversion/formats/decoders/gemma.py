"""Gemma, Gemma 2 and Gemma 3: norms whose weights are added to 1, and embeddings that are scaled.

Only their ids are scaled, not `inputs_embeds`, and in half precision the factor is rounded; ours
scales both, and rounds the product.
"""

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import (
    DECODER,
    Format,
    carry,
    choose,
    inverted,
    meaning,
    plain_attention_scale,
    require,
)
from ...engine.rotations import full_rotation, full_rotations
from ...engine.rules import Rule
from .llama import ALL_OF_THEM, IGNORED, RULES, SAME_FIELDS, llama_format, windows
from .olmo2 import BEHIND, LAYER

MLP_NORM = f"{LAYER}.mlp_norm.weight"
NORMS_AROUND = (  # a branch, from Gemma 2 on
    *(rule for rule in RULES if rule.ours != MLP_NORM),
    Rule(MLP_NORM, f"{LAYER}.pre_feedforward_layernorm.weight"),
    *BEHIND,
)

FIXED = {
    **ALL_OF_THEM,
    "norm_type": "rmsnorm_offset",
    "scale_embedding": True,
    "mlp_bias": False,
}
GEMMA_FIXED = {**FIXED, "qk_norm": False, "sliding_window": None}
GEMMA2_FIXED = {**FIXED, "norm_position": "both", "qk_norm": False}
# Its models do not read the bound of the scores that its configuration names.
GEMMA3_FIXED = {**GEMMA2_FIXED, "qk_norm": True, "attn_logit_softcapping": None}
FIELDS = (*SAME_FIELDS, "head_dim", "attention_bias")
# theirs → ours, from Gemma 2 on
LATER_FIELDS = {
    **{name: name for name in FIELDS if name not in ("hidden_act", "attention_dropout")},
    "hidden_activation": "hidden_act",
}


def gemma_to_ours(theirs: Config) -> Fields:
    require_one_direction(theirs)
    return {
        **carry(theirs, FIELDS),
        **GEMMA_FIXED,
        "attention_output_bias": theirs.attention_bias,
        "rope_parameters": full_rotation(theirs, "Gemma"),
    }


def gemma_to_theirs(ours: Config) -> Fields:
    require(ours, "Gemma", **GEMMA_FIXED, attention_output_bias=ours.attention_bias)
    plain_attention_scale(ours, "Gemma")
    if ours.hidden_act == "gelu":
        raise ConversionError(
            "hidden_act is 'gelu', which Gemma cannot express: it takes the word for "
            "'gelu_pytorch_tanh'"
        )
    return {**carry(ours, FIELDS), "rope_parameters": full_rotation(ours, "Gemma")}


def gemma2_to_ours(theirs: Config) -> Fields:
    return {
        **later_to_ours(theirs),
        **GEMMA2_FIXED,
        "attn_logit_softcapping": theirs.attn_logit_softcapping,
        "rope_parameters": full_rotation(theirs, "Gemma 2"),
    }


def gemma2_to_theirs(ours: Config) -> Fields:
    require(ours, "Gemma 2", **GEMMA2_FIXED)
    return {
        **later_to_theirs(ours, "Gemma 2"),
        "attn_logit_softcapping": as_float(ours.attn_logit_softcapping),
        "rope_parameters": full_rotation(ours, "Gemma 2"),
    }


def gemma3_to_ours(theirs: Config) -> Fields:
    rope = full_rotations(theirs, "Gemma 3")
    return {**later_to_ours(theirs), **GEMMA3_FIXED, "rope_parameters": rope}


def gemma3_to_theirs(ours: Config) -> Fields:
    require(ours, "Gemma 3", **GEMMA3_FIXED)
    rope = full_rotations(ours, "Gemma 3")
    return {**later_to_theirs(ours, "Gemma 3"), "rope_parameters": rope}


def later_to_ours(theirs: Config) -> Fields:
    """What Gemma 2 and 3 share."""
    require_one_direction(theirs)
    return {
        **carry(theirs, LATER_FIELDS),
        **carry(theirs, ("layer_types", "sliding_window")),
        "attention_dropout": theirs.attention_dropout or 0.0,
        "attention_output_bias": theirs.attention_bias,
        "attention_scale": theirs.query_pre_attn_scalar**-0.5,
        "final_logit_softcapping": theirs.final_logit_softcapping,
    }


def later_to_theirs(ours: Config, reader: str) -> Fields:
    require(ours, reader, attention_output_bias=ours.attention_bias)
    return {
        **carry(ours, inverted(LATER_FIELDS)),
        **windows(ours),
        "attention_dropout": ours.attention_dropout,
        "query_pre_attn_scalar": scalar_of_queries(ours, reader),
        "final_logit_softcapping": as_float(ours.final_logit_softcapping),
    }


def as_float(bound: float | None) -> float | None:
    """Theirs takes no whole number."""
    return None if bound is None else float(bound)


def require_one_direction(theirs: Config) -> None:
    choose(theirs, "hf_tformer", use_bidirectional_attention=(None, False))


def scalar_of_queries(ours: Config, reader: str) -> int:
    """The whole number whose root divides the scores."""
    scale = meaning(ours, "attention_scale")
    scalar = max(round(scale**-2), 1)
    if scalar**-0.5 != scale:
        raise ConversionError(
            f"attention_scale is {scale}, which {reader} cannot express: only 1 / sqrt(n) of a "
            "whole number n converts"
        )
    return scalar


FORMATS = (
    llama_format("gemma", "Gemma", gemma_to_ours, gemma_to_theirs, released="Gemma 1, CodeGemma"),
    llama_format("gemma2", "Gemma2", gemma2_to_ours, gemma2_to_theirs, NORMS_AROUND, "Gemma 2"),
    Format(
        "gemma3_text",
        NORMS_AROUND,
        gemma3_to_ours,
        gemma3_to_theirs,
        ("Gemma3TextConfig", "Gemma3ForCausalLM"),
        DECODER,
        IGNORED,
        released="Gemma 3, its text models",
    ),
)
