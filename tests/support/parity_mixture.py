"""Pairs of a mixture of experts of transformers and ours."""

import torch
import transformers

from hf_tformer import TformerMixtureConfig, TformerMixtureForCausalLM
from support.parity import (
    AROUND_LAYERS,
    NEIGHBOURS,
    OLMO2,
    TABLES,
    Case,
    Table,
    halves,
    load,
    same,
)
from support.parity_decoder import BY_KIND, MODERN, ROPE, WINDOW

BIASES = ("attention_bias", "attention_output_bias", "mlp_bias")
OURS = (TformerMixtureConfig, TformerMixtureForCausalLM)
LAYER = "model.layers.*"
MLP = [f"{LAYER}.mlp.{name}_proj.*" for name in ("gate", "up", "down")]
# Rows of 16 bytes or a multiple: transformers, by default, multiplies no others.
SIZES = {"hidden_size": 36}
BALANCED = {"output_router_logits": True, "router_aux_loss_coef": 0.1}


def table(router, experts="mlp.experts"):
    return Table(
        {
            **AROUND_LAYERS,
            **same(*(f"{LAYER}.self_attn.{x}_proj.*" for x in "qkvo"), *MLP),
            f"{LAYER}.mlp.router.weight": f"{LAYER}.{router}.weight",
            f"{LAYER}.mlp.experts.*": f"{LAYER}.{experts}.*",
        }
    )


def row(tensor):
    """[1, experts] → [experts]; no gradient reaches it."""
    return tensor if tensor is None else tensor.squeeze(0)


NORMS_OF_HEADS = same(*(f"{LAYER}.self_attn.{x}_norm.*" for x in "qk"))
NORMS_OF_ALL_HEADS = {name: rule for name, rule in OLMO2.rules.items() if "_norm.norm" in name}
HALVES = halves(f"{LAYER}.shared_mlp.input_linear.*")
SHARED = {f"{LAYER}.mlp.shared_expert.*.*": f"{LAYER}.mlp.shared_experts.*.*"}
CORRECTION = f"{LAYER}.mlp.router.correction.bias"


def with_rules(one, rules):
    return Table({**one.rules, **rules})


GATE = table("mlp.gate")
GRANITE = table("block_sparse_moe.router", "block_sparse_moe.experts")
GLM = with_rules(
    GATE, {**NORMS_OF_HEADS, **SHARED, CORRECTION: f"{LAYER}.mlp.gate.e_score_correction_bias"}
)
TABLES |= {
    "mixtral": GATE,
    "minimax_m2": with_rules(
        GATE, {**NORMS_OF_ALL_HEADS, CORRECTION: f"{LAYER}.mlp.e_score_correction_bias"}
    ),
    "qwen2_moe": with_rules(
        GATE,
        {
            **same(*(f"{LAYER}.mlp.shared_expert.{x}_proj.*" for x in ("gate", "up", "down"))),
            f"{LAYER}.mlp.shared_expert.gate.*": f"{LAYER}.mlp.shared_expert_gate.*",
        },
    ),
    "qwen3_moe": with_rules(GATE, NORMS_OF_HEADS),
    "olmoe": with_rules(GATE, NORMS_OF_ALL_HEADS),
    "dots1": GLM,
    "glm4_moe": GLM,
    "solar_open": GLM,
    "mellum": with_rules(GATE, NORMS_OF_HEADS),
    "hy_v3": with_rules(
        GATE,
        {**NORMS_OF_HEADS, **SHARED, CORRECTION: f"{LAYER}.mlp.e_score_correction_bias"},
    ),
    "ernie4_5_moe": with_rules(
        GATE,
        {
            **{name: rule for name, rule in NEIGHBOURS.rules.items() if ".self_attn." in name},
            **SHARED,
            **same("lm_head.bias"),
            CORRECTION: (f"{LAYER}.mlp.gate.moe_statics.e_score_correction_bias", row),
        },
    ),
    "granitemoe": GRANITE,
    "granitemoeshared": with_rules(
        GRANITE,
        {
            **{ours.replace("mlp.", "mlp.shared_expert."): rule for ours, rule in HALVES.items()},
            f"{LAYER}.mlp.shared_expert.down_proj.*": f"{LAYER}.shared_mlp.output_linear.*",
        },
    ),
}


class MixtureCase(Case):
    """A pair whose corrections are random, too: transformers freezes some of them at zero."""

    def build(self, backend):
        ours, theirs = super().build(backend)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, tensor in theirs.state_dict().items():
                if name.endswith("e_score_correction_bias"):
                    tensor.copy_(0.25 * torch.randn(tensor.shape, generator=generator))
        load(ours, theirs)
        for model in (ours, theirs):
            model.set_experts_implementation("eager")  # sizes are odd
        return ours, theirs


def case(prefix, both, theirs, ours):
    classes = tuple(getattr(transformers, prefix + end) for end in ("Config", "ForCausalLM"))
    return MixtureCase(classes, OURS, {**MODERN, **ROPE, **SIZES, **both}, theirs=theirs, ours=ours)


def one_size(size, theirs, **ours):
    """Of models with a single field for the size of an MLP."""
    return {"intermediate_size": size, **theirs}, {
        "moe_intermediate_size": size,
        "router_aux_loss_coef": 0.0,
        **ours,
    }


def mixtral(**both):
    both = {"num_experts_per_tok": 2, "output_router_logits": False, **both}
    theirs, ours = one_size(20, {"num_local_experts": 5}, num_experts=5)
    if both["output_router_logits"]:
        ours.pop("router_aux_loss_coef")
    return case("Mixtral", both, theirs, ours)


def minimax_m2(**both):
    both = {"num_experts_per_tok": 2, **both}
    theirs, ours = one_size(20, {"num_local_experts": 5}, num_experts=5)
    special = {"scoring_func": "sigmoid", "router_bias": True, "qk_norm": "all"}
    return case("MiniMaxM2", both, theirs, {**ours, **special})


def qwen2_moe(theirs=None, ours=None, **both):
    sizes = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
    shared = {"shared_expert_intermediate_size": 23}
    own = {"attention_bias": True, "shared_expert_gate": True, "router_aux_loss_coef": 0.0}
    both = {**without_head_dim(), **sizes, **shared, "norm_topk_prob": False, **both}
    return case("Qwen2Moe", both, theirs or {}, {**own, **(ours or {})})


def without_head_dim():
    return {"hidden_size": 48, "head_dim": 8}


def qwen3_moe(theirs=None, ours=None, **both):
    sizes = {"num_experts_per_tok": 3, "moe_intermediate_size": 20}
    own = {"num_experts": 7, "qk_norm": True, "router_aux_loss_coef": 0.0, "norm_topk_prob": True}
    both = {**sizes, **both}
    theirs = {"num_local_experts": 7, "norm_topk_prob": True, **(theirs or {})}
    return case("Qwen3Moe", both, theirs, {**own, **(ours or {})})


def olmoe(**both):
    both = {**without_head_dim(), "num_experts": 5, "num_experts_per_tok": 2, **both}
    theirs, ours = one_size(20, {}, qk_norm="all")
    return case("Olmoe", {"norm_topk_prob": False, **both}, theirs, ours)


def grouped(prefix, theirs=None, ours=None, **both):
    """dots1 and GLM-4.5: two groups of three experts, of which one is chosen from."""
    router = {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}
    both = {**router, "routed_scaling_factor": 2.5, "norm_topk_prob": True, **both}
    sizes = {"moe_intermediate_size": 20}
    theirs = {"n_routed_experts": 6, "n_shared_experts": 2, "first_k_dense_replace": 1} | (
        theirs or {}
    )
    own = {
        "num_experts": 6,
        "scoring_func": "sigmoid",
        "router_bias": True,
        "shared_expert_intermediate_size": 40,
        "mlp_only_layers": [0],
        "qk_norm": True,
        "router_aux_loss_coef": 0.0,
        **(ours or {}),
    }
    return case(prefix, {**both, **sizes}, theirs, own)


def dots1(**both):
    return grouped("Dots1", {"layer_types": ["full_attention"] * 3}, {}, **both)


def glm4_moe(is_normed=True, **both):
    rope = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    both = {**without_head_dim(), "rope_parameters": rope, **both}
    return grouped("Glm4Moe", {"use_qk_norm": is_normed}, {"qk_norm": is_normed}, **both)


def solar_open(**both):
    theirs, ours = {"first_k_dense_replace": 1}, {"qk_norm": False, "mlp_only_layers": None}
    case = grouped("SolarOpen", theirs, ours, **without_head_dim(), **both)
    del case.theirs["first_k_dense_replace"], case.both["intermediate_size"]
    case.ours["intermediate_size"] = 20
    return case


def ernie_moe(bias=False, dense=(0,), **both):
    theirs = {
        "moe_num_experts": 5,
        "moe_k": 2,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": len(dense),
        "moe_layer_end_index": 2,
        "use_bias": bias,
    }
    ours = {
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 40,
        "mlp_only_layers": list(dense) or None,
        "router_bias": True,
        "router_aux_loss_coef": 0.0,
        **dict.fromkeys((*BIASES, "lm_head_bias"), bias),
    }
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    both = {**without_head_dim(), **ids, "moe_intermediate_size": 20, **both}
    return case("Ernie4_5_Moe", both, theirs, ours)


def mellum(kinds=None, **both):
    """Windows in one layer, with a rotation of its own, and one layer without experts."""
    theirs = {"layer_types": kinds or ["full_attention"] * 3, "num_experts": 7}
    ours = {"num_experts": 7, "qk_norm": True, "mlp_only_layers": [1]}
    ours |= {"router_aux_loss_coef": 0.0, **({"layer_types": kinds} if kinds else {})}
    theirs["mlp_layer_types"] = ["sparse", "dense", "sparse"]
    if not kinds:
        theirs["rope_parameters"] = {"full_attention": ROPE["rope_parameters"]}
    sizes = {"num_experts_per_tok": 3, "moe_intermediate_size": 20, "norm_topk_prob": True}
    return case("Mellum", {**sizes, **both}, theirs, ours)


def hy_v3(bias=False, **both):
    theirs = {"num_experts": 6, "num_shared_experts": 2, "router_scaling_factor": 2.5}
    theirs |= {"mlp_layer_types": ["dense", "sparse", "sparse"]}
    ours = {"num_experts": 6, "shared_expert_intermediate_size": 40, "mlp_only_layers": [0]}
    ours |= {"routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "router_bias": True}
    ours |= {"qk_norm": True, "router_aux_loss_coef": 0.0, "attention_output_bias": bias}
    both = {"num_experts_per_tok": 2, "moe_intermediate_size": 20, **both}
    return case("HYV3", {**both, "attention_bias": bias, "mlp_bias": bias}, theirs, ours)


FACTORS = {
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.3,
}
OUR_FACTORS = {
    "scale_embedding": 3.0,
    "logit_scale": 0.5,
    "residual_multiplier": 0.5,
    "attention_scale": 0.3,
}


def granite_moe(shared=None, **both):
    both = {**without_head_dim(), "num_experts_per_tok": 2, **both}
    theirs, ours = one_size(20, {"num_local_experts": 5, **FACTORS}, num_experts=5, **OUR_FACTORS)
    if shared is None:
        return case("GraniteMoe", both, theirs, ours)
    theirs["shared_intermediate_size"] = shared
    return case(
        "GraniteMoeShared",
        both,
        theirs,
        {**ours, "shared_expert_intermediate_size": shared or None},
    )


CASES = {
    "mixtral": mixtral(),
    "mixtral balanced": mixtral(**BALANCED),
    "mixtral window tied": mixtral(sliding_window=WINDOW, tie_word_embeddings=True),
    "mixtral one expert each": mixtral(num_experts_per_tok=1),
    "minimax_m2": minimax_m2(),
    "qwen2_moe": qwen2_moe(),
    "qwen2_moe dense layers": qwen2_moe(
        mlp_only_layers=[1], norm_topk_prob=True, tie_word_embeddings=True
    ),
    "qwen3_moe": qwen3_moe(),
    "qwen3_moe every second layer": qwen3_moe(
        {"decoder_sparse_step": 2, "norm_topk_prob": False},
        {"mlp_only_layers": [0, 2], "norm_topk_prob": False},
    ),
    "olmoe": olmoe(),
    "olmoe normalised tied": olmoe(norm_topk_prob=True, tie_word_embeddings=True),
    "dots1": dots1(),
    "glm4_moe": glm4_moe(),
    "glm4_moe without norms of heads": glm4_moe(
        False, norm_topk_prob=False, routed_scaling_factor=1.0
    ),
    "solar_open": solar_open(),
    "mellum": mellum(),
    "mellum windows": mellum(
        kinds=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=WINDOW,
        rope_parameters=BY_KIND["rope_parameters"],
    ),
    "hy_v3": hy_v3(),
    "hy_v3 biases": hy_v3(bias=True, tie_word_embeddings=True),
    "ernie4_5_moe": ernie_moe(),
    "ernie4_5_moe biases": ernie_moe(True, dense=()),
    "granitemoe": granite_moe(),
    "granitemoe tied": granite_moe(tie_word_embeddings=True),
    "granitemoeshared": granite_moe(23),
    "granitemoeshared without": granite_moe(0),
}
