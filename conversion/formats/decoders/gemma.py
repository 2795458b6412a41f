"""Gemma, Gemma 2, Gemma 3, VaultGemma: norms add 1 to their weights, embeddings are scaled.

They scale only the embeddings of ids, not `inputs_embeds`, and in half precision they round the
factor. Ours scales both and rounds the product.
"""

from dataclasses import replace

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.field_map import FieldMap
from ...engine.format import DECODER, Format, require_one_of, same, windows, without
from ...engine.rotations import full_rotation, full_rotations, query_scalar
from ..shared import (
    GEMMA2_RULES,
    LLAMA_FIELDS,
    LLAMA_FIXED_ANY_WINDOW,
    LLAMA_IGNORED,
    ONE_BIAS_FOR_ATTENTION,
    decoder_format,
    llama_field_map,
)

FIXED = {
    **LLAMA_FIXED_ANY_WINDOW,
    "norm_type": "rmsnorm_offset",
    "scale_embedding": True,
    "mlp_bias": False,
    "qk_norm": False,
}
GEMMA = llama_field_map("Gemma", "attention_bias", fixed={**FIXED, "sliding_window": None})
LATER_FIELDS = {
    **without(LLAMA_FIELDS, "hidden_act", "attention_dropout"),
    **same("attention_bias"),
    "hidden_activation": "hidden_act",
}
GEMMA2_FIXED = {**FIXED, "norm_position": "both"}
GEMMA2 = FieldMap(
    "Gemma 2", LATER_FIELDS, GEMMA2_FIXED, ONE_BIAS_FOR_ATTENTION, full_rotation, checks_scale=False
)
# Gemma 2 without the norms behind a branch.
VAULTGEMMA = replace(GEMMA2, format_name="VaultGemma", fixed=FIXED)
GEMMA3 = FieldMap(
    "Gemma 3",
    LATER_FIELDS,
    # Its models do not read the bound of the scores that its configuration has.
    {**GEMMA2_FIXED, "qk_norm": True, "attn_logit_softcapping": None},
    ONE_BIAS_FOR_ATTENTION,
    full_rotations,
    checks_scale=False,
)


def require_one_direction(theirs: Config) -> None:
    require_one_of(theirs, "hf_tformer", use_bidirectional_attention=(None, False))


def gemma_to_ours(theirs: Config) -> Fields:
    require_one_direction(theirs)
    return GEMMA.to_ours(theirs)


def gemma_to_theirs(ours: Config) -> Fields:
    fields = GEMMA.to_theirs(ours)
    if ours.hidden_act == "gelu":
        raise ConversionError(
            "hidden_act is 'gelu', which Gemma cannot express: it reads this name as "
            "'gelu_pytorch_tanh'"
        )
    return fields


def later_to_ours(theirs: Config, fields: FieldMap) -> Fields:
    """Return the fields of Gemma 2 or 3, or of VaultGemma."""
    require_one_direction(theirs)
    return {
        **fields.to_ours(theirs),
        "layer_types": theirs.layer_types,
        "sliding_window": theirs.sliding_window,
        "attention_dropout": theirs.attention_dropout or 0.0,
        "attention_scale": theirs.query_pre_attn_scalar**-0.5,
        "final_logit_softcapping": theirs.final_logit_softcapping,
    }


def later_to_theirs(ours: Config, fields: FieldMap) -> Fields:
    return {
        **fields.to_theirs(ours),
        **windows(ours),
        "attention_dropout": ours.attention_dropout,
        "query_pre_attn_scalar": query_scalar(ours, fields.format_name),
        "final_logit_softcapping": as_float(ours.final_logit_softcapping),
    }


def gemma2_to_ours(theirs: Config, fields: FieldMap = GEMMA2) -> Fields:
    cap = {"attn_logit_softcapping": theirs.attn_logit_softcapping}
    return {**later_to_ours(theirs, fields), **cap}


def gemma2_to_theirs(ours: Config, fields: FieldMap = GEMMA2) -> Fields:
    cap = {"attn_logit_softcapping": as_float(ours.attn_logit_softcapping)}
    return {**later_to_theirs(ours, fields), **cap}


def as_float(bound: float | None) -> float | None:
    """Return a number that is no integer, which their configuration would refuse."""
    return None if bound is None else float(bound)


FORMATS = (
    decoder_format("gemma", "Gemma", gemma_to_ours, gemma_to_theirs, "Gemma 1, CodeGemma"),
    decoder_format("gemma2", "Gemma2", gemma2_to_ours, gemma2_to_theirs, "Gemma 2", GEMMA2_RULES),
    decoder_format(
        "vaultgemma",
        "VaultGemma",
        lambda theirs: gemma2_to_ours(theirs, VAULTGEMMA),
        lambda ours: gemma2_to_theirs(ours, VAULTGEMMA),
        "VaultGemma 1B",
        GEMMA2_RULES,
    ),
    Format(
        "gemma3_text",
        GEMMA2_RULES,
        lambda theirs: later_to_ours(theirs, GEMMA3),
        lambda ours: later_to_theirs(ours, GEMMA3),
        ("Gemma3TextConfig", "Gemma3ForCausalLM"),
        DECODER,
        LLAMA_IGNORED,
        released="Gemma 3, its text models",
    ),
)
