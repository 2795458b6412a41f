"""Mixtral and MiniMax M2, whose experts are block_sparse_moe in files."""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import BIASES, require_one_kind_of_layer, same
from ...engine.rotations import full_rotation, part_of_heads
from ...engine.rules import Rule
from ..shared import LAYER, LLAMA_FIXED_ANY_WINDOW, LLAMA_RULES, NORMS_OF_ALL_HEADS
from ..shared_mixtures import (
    EVERYWHERE,
    EXPERT_FIELDS,
    MIXTRAL_PROJECTIONS,
    NO_SHARED_EXPERT,
    ONE_SIZE,
    OUR_CORRECTION,
    SOFTMAX,
    balance_to_ours,
    balance_to_theirs,
    experts,
    mixture_format,
    number_of_experts,
    router,
)

BLOCK = "block_sparse_moe"
FIELDS = {**EXPERT_FIELDS, "num_local_experts": "num_experts"}
FIXED = {
    **LLAMA_FIXED_ANY_WINDOW,
    **dict.fromkeys(BIASES, False),
    **NO_SHARED_EXPERT,
    **EVERYWHERE,
    "norm_topk_prob": True,
}
MIXTRAL = FieldMap(
    "Mixtral",
    {**FIELDS, **same("sliding_window")},
    {**FIXED, **SOFTMAX, "qk_norm": False},
    ONE_SIZE,
    full_rotation,
)
MINIMAX_M2 = FieldMap(
    "MiniMax M2",
    FIELDS,
    {
        **FIXED,
        **SOFTMAX,
        "scoring_func": "sigmoid",
        "router_bias": True,
        "qk_norm": "all",
        "sliding_window": None,
    },
    ONE_SIZE,
    part_of_heads,
)


def rules(theirs: Config) -> tuple[Rule, ...]:
    blocks = experts(number_of_experts(theirs), f"{BLOCK}.experts", MIXTRAL_PROJECTIONS)
    return (*LLAMA_RULES, router(f"{BLOCK}.gate"), blocks)


def minimax_m2_rules(theirs: Config) -> tuple[Rule, ...]:
    correction = Rule(OUR_CORRECTION, f"{LAYER}.{BLOCK}.e_score_correction_bias")
    return (*rules(theirs), *NORMS_OF_ALL_HEADS, correction)


def mixtral_to_ours(theirs: Config) -> Fields:
    return {**MIXTRAL.to_ours(theirs), **balance_to_ours(theirs)}


def mixtral_to_theirs(ours: Config) -> Fields:
    require_one_kind_of_layer(ours, "Mixtral")
    return {**MIXTRAL.to_theirs(ours), **balance_to_theirs(ours)}


def minimax_m2_to_ours(theirs: Config) -> Fields:
    return {**MINIMAX_M2.to_ours(theirs), **balance_to_ours(theirs)}


def minimax_m2_to_theirs(ours: Config) -> Fields:
    return {**MINIMAX_M2.to_theirs(ours), **balance_to_theirs(ours)}


FORMATS = (
    mixture_format(
        "mixtral", "Mixtral", mixtral_to_ours, mixtral_to_theirs, "Mixtral 8x7B and 8x22B", rules
    ),
    mixture_format(
        "minimax_m2",
        "MiniMaxM2",
        minimax_m2_to_ours,
        minimax_m2_to_theirs,
        "MiniMax M2",
        minimax_m2_rules,
    ),
)
