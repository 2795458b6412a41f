"""OLMo, whose norms have no weights; OLMo-2, OLMo-3 and EXAONE 4, whose norms follow a branch."""

from dataclasses import replace

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import (
    BIASES,
    layer_types_of,
    meaning,
    require,
    require_one_of,
    same,
    windows,
    without,
)
from ...engine.rotations import full_rotation, full_rotations
from ...engine.rules import Rule, omitted, replaced
from ...engine.transforms import Ones, Zeros
from ..shared import (
    LAYER,
    LLAMA_FIELDS,
    LLAMA_FIXED,
    LLAMA_FIXED_ANY_WINDOW,
    LLAMA_RULES,
    NORMS_BEHIND,
    NORMS_OF_ALL_HEADS,
    ONE_BIAS_FOR_ATTENTION,
    decoder_format,
    llama_field_map,
)

NORMS = (f"{LAYER}.self_attn_norm", f"{LAYER}.mlp_norm", "model.norm")
# OLMo's norms are not trained: ours begin with a weight of one and no bias, and export only so.
OLMO_RULES = replaced(
    LLAMA_RULES,
    *(Rule(f"{norm}.weight", (), Ones("hidden_size")) for norm in NORMS),
    *(Rule(f"{norm}.bias", (), Zeros("hidden_size")) for norm in NORMS),
)
BEHIND_RULES = (*omitted(LLAMA_RULES, *(f"{norm}.weight" for norm in NORMS[:2])), *NORMS_BEHIND)
OLMO2_RULES = (*BEHIND_RULES, *NORMS_OF_ALL_HEADS)

UNBIASED = "layernorm_unbiased"
OLMO = FieldMap(
    "OLMo",
    {**without(LLAMA_FIELDS, "rms_norm_eps"), **same("attention_bias")},
    {**LLAMA_FIXED, "norm_type": UNBIASED, "layer_norm_eps": 1e-5, "mlp_bias": False},
    ONE_BIAS_FOR_ATTENTION,
    full_rotation,
)
BEHIND = {**LLAMA_FIXED_ANY_WINDOW, "norm_position": "inside", "mlp_bias": False}
OLMO3 = llama_field_map(
    "OLMo-3", "attention_bias", fixed={**BEHIND, "qk_norm": "all"}, rotation=full_rotations
)
OLMO2 = replace(OLMO3, format_name="OLMo-2", rotation=full_rotation)
EXAONE4 = llama_field_map(
    "EXAONE 4", fixed={**BEHIND, **dict.fromkeys(BIASES, False), "qk_norm": True}, equal={}
)


def olmo_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", clip_qkv=None)
    return OLMO.to_ours(theirs)


def olmo_to_theirs(ours: Config) -> Fields:
    require_one_of(ours, "OLMo", norm_type=(UNBIASED, "layernorm"))
    return replace(OLMO, fixed={**OLMO.fixed, "norm_type": ours.norm_type}).to_theirs(ours)


def olmo2_to_theirs(ours: Config) -> Fields:
    require(ours, "OLMo-2", sliding_window=None)
    return OLMO2.to_theirs(ours)


def olmo3_to_ours(theirs: Config) -> Fields:
    kinds = {"layer_types": theirs.layer_types, "sliding_window": theirs.sliding_window}
    return {**OLMO3.to_ours(theirs), **kinds}


def olmo3_to_theirs(ours: Config) -> Fields:
    return {**OLMO3.to_theirs(ours), **windows(ours)}


def exaone4_to_ours(theirs: Config) -> Fields:
    window, kinds = theirs.sliding_window, theirs.layer_types
    return {
        **EXAONE4.to_ours(theirs),
        "sliding_window": window,
        "layer_types": kinds,
        # Where there is a window, full-attention layers have no positions.
        "no_rope_layers": None
        if window is None
        else [int(kind == "sliding_attention") for kind in kinds],
    }


def exaone4_to_theirs(ours: Config) -> Fields:
    # The same holds for a window that no layer applies.
    unused = None if meaning(ours, "no_rope_layers") is None else ours.max_position_embeddings
    return {
        **EXAONE4.to_theirs(ours),
        "sliding_window": ours.sliding_window or unused,
        "layer_types": layer_types_of(ours),
    }


FORMATS = (
    decoder_format("olmo", "Olmo", olmo_to_ours, olmo_to_theirs, "OLMo 1B and 7B", OLMO_RULES),
    decoder_format("olmo2", "Olmo2", OLMO2.to_ours, olmo2_to_theirs, "OLMo 2", OLMO2_RULES),
    decoder_format("olmo3", "Olmo3", olmo3_to_ours, olmo3_to_theirs, "OLMo 3", OLMO2_RULES),
    decoder_format(
        "exaone4", "Exaone4", exaone4_to_ours, exaone4_to_theirs, "EXAONE 4", BEHIND_RULES
    ),
)
