"""Granite with and without experts, Granite 4 without states and experts, HyperCLOVA X.

They are Llama with four factors more.
"""

from dataclasses import replace

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.field_map import FieldMap
from ...engine.format import require, require_one_of, same, without
from ...engine.rotations import full_rotation
from ...engine.rules import Rule, replaced, weights
from ...engine.transforms import Split
from ..shared import (
    GATED_MLP,
    LAYER,
    LLAMA_FIELDS,
    LLAMA_FIXED,
    LLAMA_RULES,
    ONE_BIAS_FOR_ATTENTION,
    decoder_format,
)
from ..shared_mixtures import (
    EVERYWHERE,
    ONE_SIZE,
    OUR_EXPERTS,
    SOFTMAX,
    balance_to_ours,
    balance_to_theirs,
    mixture_format,
    router,
)

GRANITE = FieldMap(
    "Granite",
    {
        **LLAMA_FIELDS,
        **same("attention_bias", "mlp_bias", "residual_multiplier"),
        "attention_multiplier": "attention_scale",
    },
    without(LLAMA_FIXED, "scale_embedding", "logit_scale"),
    ONE_BIAS_FOR_ATTENTION,
    full_rotation,
    checks_scale=False,
)


def rotation_if_any(config: Config, format_name: str) -> Fields | None:
    """Return the rotation of whole heads, or None for ours without positions."""
    return full_rotation(config, format_name) if hasattr(config, "rope_parameters") else None


GRANITE4 = replace(
    GRANITE,
    format_name="Granite 4",
    fields={
        **without(GRANITE.fields, "intermediate_size", "mlp_bias"),
        "shared_intermediate_size": "intermediate_size",  # the other is the size of an expert
    },
    fixed={**without(GRANITE.fixed, "position_embedding_type"), "mlp_bias": False},
    rotation=rotation_if_any,
)
GRANITE4_RULES = replaced(
    LLAMA_RULES,
    Rule(
        tuple(f"{LAYER}.{name}.weight" for name in GATED_MLP[:2]),
        f"{LAYER}.shared_mlp.input_linear.weight",
        Split(2),
    ),
    *weights(LAYER, LAYER, {"mlp.down_proj": "shared_mlp.output_linear"}),
)
HYPERCLOVA = replace(
    GRANITE, format_name="HyperCLOVA X", fixed=without(GRANITE.fixed, "norm_position")
)
HYPERCLOVA_RULES = (
    *LLAMA_RULES,
    *weights(LAYER, LAYER, {"self_attn_output": "post_norm1", "mlp_output": "post_norm2"}),
)


MIXTURE = FieldMap(
    "Granite with experts",
    {
        **without(GRANITE.fields, "intermediate_size", "mlp_bias"),
        **same("num_experts_per_tok"),
        "intermediate_size": "moe_intermediate_size",
        "num_local_experts": "num_experts",
    },
    {
        **GRANITE.fixed,
        **SOFTMAX,
        **EVERYWHERE,
        "mlp_bias": False,
        "norm_topk_prob": True,
        "shared_expert_gate": False,
    },
    {**GRANITE.equal, **ONE_SIZE},
    full_rotation,
    checks_scale=False,
)
BLOCK = f"{LAYER}.block_sparse_moe"
MIXTURE_RULES = (
    *LLAMA_RULES,
    router("block_sparse_moe.router.layer"),
    *map(Rule, OUR_EXPERTS, (f"{BLOCK}.input_linear.weight", f"{BLOCK}.output_linear.weight")),
)
SHARED = "mlp.shared_expert"
SHARED_RULES = (
    *MIXTURE_RULES,
    Rule(
        (f"{LAYER}.{SHARED}.gate_proj.weight", f"{LAYER}.{SHARED}.up_proj.weight"),
        f"{LAYER}.shared_mlp.input_linear.weight",
        Split(2),
    ),
    *weights(LAYER, LAYER, {f"{SHARED}.down_proj": "shared_mlp.output_linear"}),
)


def to_ours(theirs: Config, fields: FieldMap = GRANITE) -> Fields:
    factor = theirs.embedding_multiplier
    return {
        **fields.to_ours(theirs),
        "scale_embedding": False if factor == 1 else factor,
        "logit_scale": 1 / theirs.logits_scaling,
    }


def to_theirs(ours: Config, fields: FieldMap = GRANITE) -> Fields:
    is_root = ours.scale_embedding is True
    return {
        **fields.to_theirs(ours),
        "attention_multiplier": ours.attention_scale or ours.head_dim**-0.5,
        "embedding_multiplier": ours.hidden_size**0.5 if is_root else ours.scale_embedding or 1.0,
        "logits_scaling": float(f"{1 / ours.logit_scale:.15g}"),  # 7.2 comes back as 7.2
    }


def granite4_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", num_local_experts=0)
    require_one_of(theirs, "hf_tformer", position_embedding_type=("rope", None))
    if other := sorted(set(theirs.layer_types) - {"full_attention"}):
        raise ConversionError(
            f"layer_types holds {other}, layers that carry a state, and ours attend: only models "
            "that have none convert, such as Granite 4.0 Micro"
        )
    turns = theirs.position_embedding_type == "rope"
    positions = {"position_embedding_type": "rotary" if turns else "none"}
    return {**to_ours(theirs, GRANITE4), **positions}


def granite4_to_theirs(ours: Config) -> Fields:
    require_one_of(ours, "Granite 4", position_embedding_type=("rotary", "none"))
    return {
        **to_theirs(ours, GRANITE4),
        "num_local_experts": 0,
        "intermediate_size": ours.intermediate_size,  # of an expert; released models have both
        "mamba_n_heads": 1,  # which no layer reads, but it has to divide the size of a state
        "layer_types": ["full_attention"] * ours.num_hidden_layers,
        "position_embedding_type": "rope" if ours.position_embedding_type == "rotary" else None,
    }


def mixture_to_ours(theirs: Config) -> Fields:
    return {**to_ours(theirs, MIXTURE), **balance_to_ours(theirs)}


def mixture_to_theirs(ours: Config) -> Fields:
    require(ours, "Granite with experts", shared_expert_intermediate_size=None)
    return {**to_theirs(ours, MIXTURE), **balance_to_theirs(ours)}


def shared_mixture_to_ours(theirs: Config) -> Fields:
    size = theirs.shared_intermediate_size or None
    return {**mixture_to_ours(theirs), "shared_expert_intermediate_size": size}


def shared_mixture_to_theirs(ours: Config) -> Fields:
    fields = {**to_theirs(ours, MIXTURE), **balance_to_theirs(ours)}
    return {**fields, "shared_intermediate_size": ours.shared_expert_intermediate_size or 0}


def hyperclova_to_ours(theirs: Config) -> Fields:
    return {
        **to_ours(theirs, HYPERCLOVA),
        "norm_position": "both" if theirs.use_post_norm else "pre",
        "logit_scale": theirs.logits_scaling,
    }


def hyperclova_to_theirs(ours: Config) -> Fields:
    require_one_of(ours, "HyperCLOVA X", norm_position=("pre", "both"))
    return {
        **to_theirs(ours, HYPERCLOVA),
        "use_post_norm": ours.norm_position == "both",
        "logits_scaling": ours.logit_scale,
    }


FORMATS = (
    decoder_format("granite", "Granite", to_ours, to_theirs, "Granite 3"),
    mixture_format(
        "granitemoe",
        "GraniteMoe",
        mixture_to_ours,
        mixture_to_theirs,
        "Granite 3 1B-A400M and 3B-A800M",
        MIXTURE_RULES,
    ),
    mixture_format(
        "granitemoeshared",
        "GraniteMoeShared",
        shared_mixture_to_ours,
        shared_mixture_to_theirs,
        "Granite mixtures with a shared expert",
        SHARED_RULES,
    ),
    decoder_format(
        "granitemoehybrid",
        "GraniteMoeHybrid",
        granite4_to_ours,
        granite4_to_theirs,
        "Granite 4.0 Micro, 1B and 350M, without states",
        GRANITE4_RULES,
    ),
    decoder_format(
        "hyperclovax",
        "HyperCLOVAX",
        hyperclova_to_ours,
        hyperclova_to_theirs,
        "HyperCLOVA X SEED Think 14B",
        HYPERCLOVA_RULES,
    ),
)
