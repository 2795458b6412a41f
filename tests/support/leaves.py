"""What other architectures have and the defaults have not: one small model of each, and of several
at once."""

import pytest

from support.families import FAMILIES

WINDOWS = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
ROPE_BY_KIND = {
    "sliding_attention": {"rope_theta": 100.0},
    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e4},
}
FAIRSEQ = {
    "position_embedding_type": "sinusoidal",
    "sinusoidal_layout": "fairseq",
    "pad_token_id": 7,
}
COMMON = {
    "norms behind each branch": {"norm_position": "inside"},
    "norms on both sides": {"norm_position": "both"},
    "weights beside one": {"norm_type": "rmsnorm_offset"},
    "norms without biases": {"norm_type": "layernorm_unbiased"},
    "one norm of all heads": {"qk_norm": "all"},
    "fairseq's sinusoids": FAIRSEQ,
    "scaled embeddings": {"scale_embedding": 3.7},
}
BY_KIND = {"rotations by kind": {"rope_parameters": ROPE_BY_KIND, **WINDOWS}}
LEAVES = {
    "decoder": {
        **COMMON,
        **BY_KIND,
        "a layer that does not turn": {"no_rope_layers": [0, 1]},
        "linear bias": {"score_bias": "alibi", "position_embedding_type": "none"},
        "side by side": {"parallel_residual": "own"},
        "side by side, one norm": {"parallel_residual": "shared"},
        "bounded scores": {"attn_logit_softcapping": 0.7},
        "bounded logits": {"final_logit_softcapping": 0.9},
        "scaled branches": {"residual_multiplier": 0.3},
    },
    "mixture": {
        "sigmoid of scores": {"scoring_func": "sigmoid", "routed_scaling_factor": 2.5},
        "scores as they are": {"norm_topk_prob": False},
        "scores corrected": {"router_bias": True},
        "groups of experts": {"num_experts": 6, "n_group": 3, "topk_group": 1},
        "experts in every layer": {"mlp_only_layers": None},
        "a shared expert": {"shared_expert_intermediate_size": 20},
        "a gated shared expert": {
            "shared_expert_intermediate_size": 20,
            "shared_expert_gate": True,
        },
        "norms behind each branch": {"norm_position": "inside"},
        "side by side": {"parallel_residual": "own"},
    },
    "seq2seq": {
        **COMMON,
        "relative bias": {"score_bias": "relative"},
        "relative bias of each layer": {"score_bias": "relative_per_layer"},
    },
    "encoder": {
        **COMMON,
        **BY_KIND,
        "relative bias": {"score_bias": "relative"},
        "embeddings scaled by their size": {"scale_embedding": True},
    },
}
# Several at once, as architectures have them, where one of each would take too long.
ARCHITECTURES = {
    "decoder": {
        "Gemma": {
            "norm_position": "both",
            "norm_type": "rmsnorm_offset",
            "qk_norm": True,
            "scale_embedding": True,
            "attn_logit_softcapping": 0.7,
            "final_logit_softcapping": 0.9,
            **BY_KIND["rotations by kind"],
        },
        "OLMo": {"norm_position": "inside", "qk_norm": "all", "no_rope_layers": [0, 1]},
        "BLOOM": {
            "score_bias": "alibi",
            "position_embedding_type": "none",
            "norm_type": "layernorm_unbiased",
            "parallel_residual": "own",
            "residual_multiplier": 0.3,
        },
    },
    "mixture": {
        "GLM": {
            "scoring_func": "sigmoid",
            "router_bias": True,
            **{"num_experts": 6, "n_group": 3, "topk_group": 2},
            "routed_scaling_factor": 2.5,
            "shared_expert_intermediate_size": 20,
            "qk_norm": True,
        },
        "Qwen2": {
            "norm_topk_prob": False,
            "shared_expert_intermediate_size": 20,
            "shared_expert_gate": True,
            "attention_bias": True,
        },
    },
    "seq2seq": {
        "T5": {"norm_type": "rmsnorm", "norm_position": "pre", "score_bias": "relative"},
        "UMT5": {"norm_position": "both", "score_bias": "relative_per_layer", **FAIRSEQ},
        "OLMo": {"norm_type": "rmsnorm_offset", "norm_position": "inside", "qk_norm": "all"},
    },
    "encoder": {
        "MPNet": {"norm_position": "post", "score_bias": "relative", **FAIRSEQ},
        "Gemma": {
            "norm_position": "both",
            "norm_type": "rmsnorm_offset",
            "qk_norm": "all",
            "scale_embedding": True,
            **BY_KIND["rotations by kind"],
        },
    },
}


def backend_of(fields):
    """The one that is chosen where none is asked for."""
    return "eager" if "attn_logit_softcapping" in fields else "sdpa"


def each(table, families=FAMILIES):
    """Marks a test that takes `family` and `leaf`."""
    cases = [
        pytest.param(family, fields, id=f"{family.name}, {name}")
        for family in families
        for name, fields in table[family.name].items()
    ]
    return pytest.mark.parametrize(("family", "leaf"), cases)


BERT = {
    "type_vocab_size": 2,
    "position_embedding_type": "learned",
    "sliding_window": None,
    "norm_type": "layernorm",
    "norm_position": "post",
    "embedding_norm": True,
    "mlp_type": "plain",
}
GPT2 = {
    "position_embedding_type": "learned",
    "norm_type": "layernorm",
    "mlp_type": "plain",
    "lm_head_bias": True,
}
