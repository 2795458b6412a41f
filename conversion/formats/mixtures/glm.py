"""GLM-4.5, dots1, Solar Open, Ernie 4.5 and Hy3: corrected scores, and a shared expert."""

from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.field_map import FieldMap
from ...engine.format import layer_types_of, require_ids, require_one_of, same, windows, without
from ...engine.rotations import full_rotation, part_of_heads
from ...engine.rules import Rule
from ...engine.transforms import Flatten
from ..shared import (
    LAYER,
    LLAMA_FIXED_ANY_WINDOW,
    LLAMA_RULES,
    NEIGHBOUR_RULES,
    ONE_BIAS_FOR_ALL,
    ONE_BIAS_FOR_ATTENTION,
)
from ..shared_mixtures import (
    EVERYWHERE,
    MIXTURE_FIELDS,
    ONE_SIZE,
    OUR_CORRECTION,
    SOFTMAX,
    balance_to_ours,
    balance_to_theirs,
    experts,
    first_dense,
    first_with_experts,
    listed_to_ours,
    listed_to_theirs,
    mixture_format,
    mixture_rules,
    number_of_experts,
    router,
    shared_expert,
    shared_size,
)

SIGMOID = {"scoring_func": "sigmoid", "router_bias": True, "shared_expert_gate": False}
GROUPED = same("norm_topk_prob", "routed_scaling_factor", "n_group", "topk_group")
FIELDS = {**MIXTURE_FIELDS, **GROUPED, **same("attention_bias"), "n_routed_experts": "num_experts"}
FIXED = {**LLAMA_FIXED_ANY_WINDOW, **SIGMOID, "mlp_bias": False}
UNBIASED_OUTPUT = {"attention_output_bias": False, "sliding_window": None}
DOTS1 = FieldMap("dots1", FIELDS, {**FIXED, "qk_norm": True}, ONE_BIAS_FOR_ATTENTION, full_rotation)
GLM4_MOE = FieldMap("GLM-4.5", FIELDS, {**FIXED, **UNBIASED_OUTPUT}, {}, part_of_heads)
SOLAR_OPEN = FieldMap(
    "Solar Open",
    without(FIELDS, "intermediate_size"),
    {**FIXED, **UNBIASED_OUTPUT, **EVERYWHERE, "qk_norm": False},
    ONE_SIZE,
    full_rotation,
)
ERNIE_MOE = FieldMap(
    "Ernie 4.5",
    {
        **without(MIXTURE_FIELDS, "attention_dropout", "num_experts_per_tok"),
        "use_bias": "attention_bias",
        "moe_num_experts": "num_experts",
        "moe_k": "num_experts_per_tok",
    },
    {
        **without(LLAMA_FIXED_ANY_WINDOW, "lm_head_bias"),
        **SOFTMAX,
        "router_bias": True,
        "shared_expert_gate": False,
        "norm_topk_prob": True,
        "qk_norm": False,
        "sliding_window": None,
    },
    {**ONE_BIAS_FOR_ALL, "lm_head_bias": "attention_bias"},
    full_rotation,
)
HY_V3 = FieldMap(
    "Hy3",
    {
        **MIXTURE_FIELDS,
        **same("num_experts", "attention_bias", "mlp_bias"),
        "router_scaling_factor": "routed_scaling_factor",
    },
    {
        **LLAMA_FIXED_ANY_WINDOW,
        **SIGMOID,
        "norm_topk_prob": True,
        "n_group": 1,
        "qk_norm": True,
        "sliding_window": None,
    },
    ONE_BIAS_FOR_ATTENTION,
    full_rotation,
)
CORRECTED = Rule(OUR_CORRECTION, f"{LAYER}.mlp.gate.e_score_correction_bias")
RULES = (*LLAMA_RULES, *shared_expert("mlp.shared_experts"), CORRECTED)
ERNIE_RULES = (
    *NEIGHBOUR_RULES,
    Rule("lm_head.bias", "lm_head.bias"),
    *shared_expert("mlp.shared_experts"),
    Rule(OUR_CORRECTION, f"{LAYER}.mlp.moe_statics.e_score_correction_bias", Flatten()),
)
HY_RULES = (
    *LLAMA_RULES,
    *shared_expert("mlp.shared_mlp"),
    Rule(OUR_CORRECTION, f"{LAYER}.mlp.expert_bias"),
    router("mlp.router.gate"),
)


def hy_v3_rules(theirs: Config) -> tuple[Rule, ...]:
    return (*HY_RULES, experts(number_of_experts(theirs), "mlp.experts"))


def shared_to_ours(theirs: Config, count: int) -> Fields:
    size = count * theirs.moe_intermediate_size
    return {"shared_expert_intermediate_size": size or None}


def shared_to_theirs(ours: Config, format_name: str) -> Fields:
    """Return the number of shared experts, of which these models have at least one."""
    if ours.shared_expert_intermediate_size is None:
        raise ConversionError(
            f"shared_expert_intermediate_size is None, but {format_name} has a shared expert: "
            "choose another format"
        )
    return {"n_shared_experts": shared_size(ours, format_name)}


def corrected_to_ours(theirs: Config) -> Fields:
    return {
        **shared_to_ours(theirs, theirs.n_shared_experts),
        "router_aux_loss_coef": 0.0,  # these have no balance loss
    }


def corrected_to_theirs(ours: Config, format_name: str) -> Fields:
    return {
        **shared_to_theirs(ours, format_name),
        "first_k_dense_replace": first_with_experts(ours, format_name),
    }


def dots1_to_ours(theirs: Config) -> Fields:
    slides = "sliding_attention" in theirs.layer_types
    return {
        **DOTS1.to_ours(theirs),
        **corrected_to_ours(theirs),
        **first_dense(theirs),
        "sliding_window": theirs.sliding_window if slides else None,
        "layer_types": theirs.layer_types,
    }


def dots1_to_theirs(ours: Config) -> Fields:
    return {
        **DOTS1.to_theirs(ours),
        **corrected_to_theirs(ours, "dots1"),
        **windows(ours),
        "max_window_layers": layer_types_of(ours).count("full_attention"),
    }


def glm4_moe_to_ours(theirs: Config) -> Fields:
    return {
        **GLM4_MOE.to_ours(theirs),
        **corrected_to_ours(theirs),
        **first_dense(theirs),
        "qk_norm": theirs.use_qk_norm,
    }


def glm4_moe_to_theirs(ours: Config) -> Fields:
    require_one_of(ours, "GLM-4.5", qk_norm=(True, False))
    return {
        **GLM4_MOE.to_theirs(ours),
        **corrected_to_theirs(ours, "GLM-4.5"),
        "use_qk_norm": ours.qk_norm,
    }


def solar_open_to_ours(theirs: Config) -> Fields:
    return {**SOLAR_OPEN.to_ours(theirs), **corrected_to_ours(theirs)}


def solar_open_to_theirs(ours: Config) -> Fields:
    return {**SOLAR_OPEN.to_theirs(ours), **shared_to_theirs(ours, "Solar Open")}


def ernie_moe_to_ours(theirs: Config) -> Fields:
    first, last = theirs.moe_layer_start_index, theirs.moe_layer_end_index
    sparse = every(theirs.moe_layer_interval, first, last)
    dense = [index for index in range(theirs.num_hidden_layers) if index not in sparse]
    return {
        **ERNIE_MOE.to_ours(theirs),
        **shared_to_ours(theirs, theirs.moe_num_shared_experts),
        **balance_to_ours(theirs),
        "mlp_only_layers": dense or None,
    }


def ernie_moe_to_theirs(ours: Config) -> Fields:
    require_ids(ours, "Ernie 4.5", "pad_token_id", "bos_token_id", "eos_token_id")
    return {
        **ERNIE_MOE.to_theirs(ours),
        **balance_to_theirs(ours),
        **ernie_layers(ours),
        "moe_num_shared_experts": shared_size(ours, "Ernie 4.5"),
    }


def every(interval: int, first: int, last: int) -> list[int]:
    """Return the layers between two that have experts, counted as Ernie 4.5 does."""
    return [index for index in range(first, last + 1) if (index + 1) % interval == 0]


def ernie_layers(ours: Config) -> Fields:
    """Return which layers have experts: each of a range, or each second or third of it."""
    dense = ours.mlp_only_layers or ()
    sparse = [index for index in range(ours.num_hidden_layers) if index not in dense]
    first, last = (sparse[0], sparse[-1]) if sparse else (ours.num_hidden_layers, -1)
    interval = sparse[1] - sparse[0] if len(sparse) > 1 else 1
    if sparse != every(interval, first, last):
        raise ConversionError(
            f"mlp_only_layers is {ours.mlp_only_layers}, but Ernie 4.5 has experts in each layer "
            "of a range, or in each second or third, counted from one (with 2: the layers 1, 3, 5 "
            "of mlp_only_layers): choose qwen2_moe or qwen3_moe"
        )
    place = {"moe_layer_start_index": first, "moe_layer_end_index": last}
    return {**place, "moe_layer_interval": interval}


def hy_v3_to_ours(theirs: Config) -> Fields:
    return {
        **HY_V3.to_ours(theirs),
        **listed_to_ours(theirs),
        **shared_to_ours(theirs, theirs.num_shared_experts),
        "router_aux_loss_coef": 0.0,
    }


def hy_v3_to_theirs(ours: Config) -> Fields:
    return {
        **HY_V3.to_theirs(ours),
        **listed_to_theirs(ours),
        "num_shared_experts": shared_to_theirs(ours, "Hy3")["n_shared_experts"],
    }


FORMATS = (
    mixture_format(
        "dots1", "Dots1", dots1_to_ours, dots1_to_theirs, "dots.llm1", partial(mixture_rules, RULES)
    ),
    mixture_format(
        "glm4_moe",
        "Glm4Moe",
        glm4_moe_to_ours,
        glm4_moe_to_theirs,
        "GLM-4.5, GLM-4.5-Air, GLM-4.6",
        partial(mixture_rules, RULES),
        has_draft_layers=True,
    ),
    mixture_format(
        "solar_open",
        "SolarOpen",
        solar_open_to_ours,
        solar_open_to_theirs,
        "Solar Open 100B",
        partial(mixture_rules, RULES),
    ),
    mixture_format(
        "ernie4_5_moe",
        "Ernie4_5_Moe",
        ernie_moe_to_ours,
        ernie_moe_to_theirs,
        "ERNIE 4.5 21B-A3B and 300B-A47B",
        partial(mixture_rules, ERNIE_RULES),
    ),
    mixture_format(
        "hy_v3", "HYV3", hy_v3_to_ours, hy_v3_to_theirs, "Hy3", hy_v3_rules, has_draft_layers=True
    ),
)
