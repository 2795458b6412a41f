"""The mixtures of Qwen2 and Qwen3, some of whose layers may lack experts, OLMoE and Mellum 2."""

from dataclasses import replace
from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import (
    BIASES,
    layer_types_of,
    require,
    require_one_kind_of_layer,
    same,
    windows,
)
from ...engine.rotations import full_rotation, full_rotations
from ...engine.rules import weights
from ..shared import (
    LAYER,
    LLAMA_FIXED_ANY_WINDOW,
    LLAMA_RULES,
    NORMS_OF_ALL_HEADS,
    ONE_BIAS_FOR_ATTENTION,
)
from ..shared_mixtures import (
    EVERYWHERE,
    EXPERT_FIELDS,
    MIXTURE_FIELDS,
    NO_SHARED_EXPERT,
    ONE_SIZE,
    SOFTMAX,
    balance_to_ours,
    balance_to_theirs,
    listed_to_ours,
    listed_to_theirs,
    mixture_format,
    mixture_rules,
    shared_expert,
)

QWEN2_MOE = FieldMap(
    "Qwen2-MoE",
    {
        **MIXTURE_FIELDS,
        **same("num_experts", "shared_expert_intermediate_size", "norm_topk_prob"),
        "qkv_bias": "attention_bias",
    },
    {
        **LLAMA_FIXED_ANY_WINDOW,
        **SOFTMAX,
        **dict.fromkeys(BIASES[1:], False),
        "qk_norm": False,
        "shared_expert_gate": True,
    },
    rotation=full_rotation,
)
QWEN3_MOE = FieldMap(
    "Qwen3-MoE",
    {
        **MIXTURE_FIELDS,
        **same("norm_topk_prob", "attention_bias", "sliding_window"),
        "num_local_experts": "num_experts",
    },
    {**LLAMA_FIXED_ANY_WINDOW, **SOFTMAX, **NO_SHARED_EXPERT, "qk_norm": True, "mlp_bias": False},
    ONE_BIAS_FOR_ATTENTION,
    full_rotation,
)
MELLUM = replace(
    QWEN3_MOE,
    format_name="Mellum",
    fields={**MIXTURE_FIELDS, **same("num_experts", "norm_topk_prob", "attention_bias")},
    rotation=full_rotations,
)
OLMOE = FieldMap(
    "OLMoE",
    {**EXPERT_FIELDS, **same("num_experts", "norm_topk_prob", "attention_bias")},
    {
        **LLAMA_FIXED_ANY_WINDOW,
        **SOFTMAX,
        **NO_SHARED_EXPERT,
        **EVERYWHERE,
        "qk_norm": "all",
        "mlp_bias": False,
        "sliding_window": None,
    },
    {**ONE_SIZE, **ONE_BIAS_FOR_ATTENTION},
    full_rotation,
)
QWEN2_RULES = (
    *LLAMA_RULES,
    *shared_expert("mlp.shared_expert"),
    *weights(LAYER, LAYER, {"mlp.shared_expert.gate": "mlp.shared_expert_gate"}),
)
OLMOE_RULES = (*LLAMA_RULES, *NORMS_OF_ALL_HEADS)


def dense_to_ours(theirs: Config) -> Fields:
    """Return which layers have no experts: those named, and all that a step leaves out."""
    dense = [
        index
        for index in range(theirs.num_hidden_layers)
        if index in theirs.mlp_only_layers or (index + 1) % theirs.decoder_sparse_step
    ]
    return {"mlp_only_layers": dense or None}


def dense_to_theirs(ours: Config) -> Fields:
    return {"mlp_only_layers": ours.mlp_only_layers or [], "decoder_sparse_step": 1}


def qwen2_moe_to_ours(theirs: Config) -> Fields:
    slides = "sliding_attention" in theirs.layer_types
    return {
        **QWEN2_MOE.to_ours(theirs),
        **dense_to_ours(theirs),
        **balance_to_ours(theirs),
        "sliding_window": theirs.sliding_window if slides else None,
        "layer_types": theirs.layer_types,
    }


def qwen2_moe_to_theirs(ours: Config) -> Fields:
    layer_types = layer_types_of(ours)
    slides = "sliding_attention" in layer_types
    return {
        **QWEN2_MOE.to_theirs(ours),
        **dense_to_theirs(ours),
        **balance_to_theirs(ours),
        "use_sliding_window": slides,
        "sliding_window": ours.sliding_window if slides else 0,
        "layer_types": layer_types,
        "max_window_layers": layer_types.index("sliding_attention") if slides else len(layer_types),
    }


def qwen3_moe_to_ours(theirs: Config) -> Fields:
    return {**QWEN3_MOE.to_ours(theirs), **dense_to_ours(theirs), **balance_to_ours(theirs)}


def qwen3_moe_to_theirs(ours: Config) -> Fields:
    require_one_kind_of_layer(ours, "Qwen3-MoE")
    return {
        **QWEN3_MOE.to_theirs(ours),
        **dense_to_theirs(ours),
        **balance_to_theirs(ours),
        "use_sliding_window": ours.sliding_window is not None,
    }


def olmoe_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", clip_qkv=None)
    return {**OLMOE.to_ours(theirs), **balance_to_ours(theirs)}


def olmoe_to_theirs(ours: Config) -> Fields:
    return {**OLMOE.to_theirs(ours), **balance_to_theirs(ours)}


def mellum_to_ours(theirs: Config) -> Fields:
    slides = "sliding_attention" in theirs.layer_types
    return {
        **MELLUM.to_ours(theirs),
        **listed_to_ours(theirs),
        **balance_to_ours(theirs),
        "sliding_window": theirs.sliding_window if slides else None,
        "layer_types": theirs.layer_types,
    }


def mellum_to_theirs(ours: Config) -> Fields:
    return {
        **MELLUM.to_theirs(ours),
        **listed_to_theirs(ours),
        **balance_to_theirs(ours),
        **windows(ours),
    }


FORMATS = (
    mixture_format(
        "qwen2_moe",
        "Qwen2Moe",
        qwen2_moe_to_ours,
        qwen2_moe_to_theirs,
        "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
        partial(mixture_rules, QWEN2_RULES),
    ),
    mixture_format(
        "qwen3_moe",
        "Qwen3Moe",
        qwen3_moe_to_ours,
        qwen3_moe_to_theirs,
        "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder",
        partial(mixture_rules, LLAMA_RULES),
    ),
    mixture_format(
        "olmoe",
        "Olmoe",
        olmoe_to_ours,
        olmoe_to_theirs,
        "OLMoE-1B-7B",
        partial(mixture_rules, OLMOE_RULES),
    ),
    mixture_format(
        "mellum",
        "Mellum",
        mellum_to_ours,
        mellum_to_theirs,
        "Mellum 2 12B-A2.5B",
        partial(mixture_rules, LLAMA_RULES),
        has_draft_layers=True,
    ),
)
