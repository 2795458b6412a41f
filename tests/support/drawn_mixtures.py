"""Random configurations of mixtures of experts in transformers, drawn as drawn_decoders.py does."""

import random

from support.drawn_decoders import PART, granite, shared, windows
from support.drawn_encoders import rope

FORMATS = {
    "mixtral": "Mixtral",
    "minimax_m2": "MiniMaxM2",
    "qwen2_moe": "Qwen2Moe",
    "qwen3_moe": "Qwen3Moe",
    "olmoe": "Olmoe",
    "dots1": "Dots1",
    "glm4_moe": "Glm4Moe",
    "solar_open": "SolarOpen",
    "mellum": "Mellum",
    "hy_v3": "HYV3",
    "ernie4_5_moe": "Ernie4_5_Moe",
    "granitemoe": "GraniteMoe",
    "granitemoeshared": "GraniteMoeShared",
}


def draw(form, seed):
    """A class of transformers and a configuration for it; not all make a model, or convert."""
    rng = random.Random(f"{form} {seed}")
    fields = {**shared(rng), "rms_norm_eps": 10 ** rng.uniform(-9, -1), **OWN[form](rng)}
    if rng.random() < 0.15:
        fields |= rng.choice(SPOILT[form])
    return f"{FORMATS[form]}ForCausalLM", f"{FORMATS[form]}Config", fields


def router(rng, name):
    """The number of experts, which has a name of its own in each format, and how many are taken."""
    experts = rng.randint(1, 7)
    return {
        name: experts,
        "num_experts_per_tok": rng.randint(1, experts),
        "output_router_logits": rng.random() < 0.3,
        "router_aux_loss_coef": rng.choice([0.0, 0.01]),
    }


def in_groups(rng):
    groups, each = rng.randint(1, 3), rng.randint(2, 3)
    kept = rng.randint(1, groups)
    return {
        "n_routed_experts": groups * each,
        "n_group": groups,
        "topk_group": kept,
        "num_experts_per_tok": rng.randint(1, kept * each),
        "norm_topk_prob": rng.random() < 0.6,
        "routed_scaling_factor": rng.choice([1.0, 0.5, 2.5]),
        "n_shared_experts": rng.randint(1, 2),
        "first_k_dense_replace": rng.randint(0, 2),
        "moe_intermediate_size": rng.randint(1, 30),
    }


def head_dim(rng):
    return rng.choice([{}, {"head_dim": 8}])


def mixtral(rng):
    window = {"sliding_window": rng.choice([None, 2, 8])}
    return {**router(rng, "num_local_experts"), **window, **head_dim(rng)}


def minimax_m2(rng):
    return {**router(rng, "num_local_experts"), "head_dim": rng.choice([4, 8])}


def some_dense(rng):
    """At least one layer has experts: without, transformers cannot say how even they are used."""
    return {
        "num_hidden_layers": rng.randint(2, 4),
        "decoder_sparse_step": rng.choice([1, 1, 2]),
        "mlp_only_layers": rng.choice([[], [0]]),
        "moe_intermediate_size": rng.randint(1, 30),
        "norm_topk_prob": rng.random() < 0.5,
    }


def qwen2_moe(rng):
    slides = rng.choice([{}, {"use_sliding_window": True, "sliding_window": 3}])
    return {
        **router(rng, "num_experts"),
        **some_dense(rng),
        **slides,
        "max_window_layers": rng.randint(0, 3),
        "shared_expert_intermediate_size": rng.randint(1, 30),
        "qkv_bias": rng.random() < 0.5,
    }


def qwen3_moe(rng):
    slides = rng.choice([{}, {"use_sliding_window": True, "sliding_window": 3}])
    return {**router(rng, "num_local_experts"), **some_dense(rng), **slides, **head_dim(rng)}


def olmoe(rng):
    return {**router(rng, "num_experts"), "norm_topk_prob": rng.random() < 0.5}


def dots1(rng):
    return {**windows(rng), **in_groups(rng), **head_dim(rng)}


def glm4_moe(rng):
    part = rng.choice([0.5, 1.0])
    rope = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": part}
    return {
        **in_groups(rng),
        "head_dim": 8,
        "use_qk_norm": rng.random() < 0.5,
        "rope_parameters": rope,
    }


def solar_open(rng):
    fields = {
        name: value for name, value in in_groups(rng).items() if name != "first_k_dense_replace"
    }
    return {**fields, "head_dim": 8}


def ernie_moe(rng):
    experts = rng.randint(1, 7)
    return {
        "moe_num_experts": experts,
        "moe_k": rng.randint(1, experts),
        "moe_num_shared_experts": rng.randint(0, 2),
        "moe_layer_start_index": rng.randint(0, 2),
        "moe_layer_end_index": rng.choice([-1, 9]),
        "moe_layer_interval": rng.choice([1, 1, 2, 3]),
        "moe_intermediate_size": rng.randint(1, 30),
        "use_bias": rng.random() < 0.4,
        **{f"{role}_token_id": rng.randint(0, 8) for role in ("pad", "bos", "eos")},
    }


def kinds(rng):
    count = rng.randint(1, 4)
    dense = [rng.choice(["dense", "sparse"]) for _ in range(count)]
    dense[rng.randrange(count)] = "sparse"  # as in some_dense
    return {"num_hidden_layers": count, "mlp_layer_types": dense}


def mellum(rng):
    some = kinds(rng)
    slides = rng.choice(["full_attention", "sliding_attention"])
    types = [rng.choice(["full_attention", slides]) for _ in some["mlp_layer_types"]]
    ropes = {kind: rope(rng) for kind in ("full_attention", "sliding_attention")}
    return {
        **router(rng, "num_experts"),
        **some,
        "layer_types": types,
        "rope_parameters": ropes,
        "sliding_window": rng.choice([2, 8]),
        "moe_intermediate_size": rng.randint(1, 30),
        "norm_topk_prob": rng.random() < 0.5,
        "head_dim": rng.choice([4, 8]),
    }


def hy_v3(rng):
    experts = rng.randint(1, 7)
    return {
        **kinds(rng),
        "num_experts": experts,
        "num_experts_per_tok": rng.randint(1, experts),
        "num_shared_experts": rng.randint(1, 2),
        "router_scaling_factor": rng.choice([1.0, 2.5]),
        "moe_intermediate_size": rng.randint(1, 30),
        "mlp_bias": rng.random() < 0.5,
        "head_dim": rng.choice([4, 8]),
    }


def granite_moe(rng):
    fields = {name: value for name, value in granite(rng).items() if name != "mlp_bias"}
    return {**fields, **router(rng, "num_local_experts")}


def granite_moe_shared(rng):
    return {**granite_moe(rng), "shared_intermediate_size": rng.choice([0, 1, 17])}


OWN = {
    "mixtral": mixtral,
    "minimax_m2": minimax_m2,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "olmoe": olmoe,
    "dots1": dots1,
    "glm4_moe": glm4_moe,
    "solar_open": solar_open,
    "mellum": mellum,
    "hy_v3": hy_v3,
    "ernie4_5_moe": ernie_moe,
    "granitemoe": granite_moe,
    "granitemoeshared": granite_moe_shared,
}
HALF = PART["rope_parameters"]
# Things that no conversion may pass over in silence.
SPOILT = {
    "mixtral": [PART, {"sliding_window": 1}],
    "minimax_m2": [{"num_experts_per_tok": 9}],
    "qwen2_moe": [PART],
    "qwen3_moe": [PART],
    "olmoe": [PART, {"clip_qkv": 0.5}],
    "dots1": [PART, {"n_group": 4, "topk_group": 5}],
    "glm4_moe": [{"n_group": 4, "topk_group": 5}],
    "mellum": [{"rope_parameters": dict.fromkeys(("full_attention", "sliding_attention"), HALF)}],
    "hy_v3": [PART, {"num_experts_per_tok": 9}],
    "solar_open": [PART, {"n_group": 4, "topk_group": 5}],
    "ernie4_5_moe": [PART],
    "granitemoe": [PART, {"residual_multiplier": 0}],
    "granitemoeshared": [PART, {"residual_multiplier": 0}],
}
