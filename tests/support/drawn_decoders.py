"""Random configurations of transformers' decoders, with values that convert and values that do not.

Every field that changes an answer is drawn.
"""

import random

from support.drawn_encoders import ACTIVATIONS, rope

FORMATS = {
    "gpt_neox": "GPTNeoX",
    "gptj": "GPTJ",
    "codegen": "CodeGen",
    "persimmon": "Persimmon",
    "phi": "Phi",
    "falcon": "Falcon",
    "cohere": "Cohere",
    "cohere2": "Cohere2",
    "stablelm": "StableLm",
    "granite": "Granite",
    "granitemoehybrid": "GraniteMoeHybrid",
    "hyperclovax": "HyperCLOVAX",
    "cwm": "Cwm",
    "ministral": "Ministral",
    "jais2": "Jais2",
    "vaultgemma": "VaultGemma",
}
SPECIAL = ("pad", "bos", "eos")


def draw(form, seed):
    """A class of transformers and a configuration for it; not all make a model, or convert."""
    rng = random.Random(f"{form} {seed}")
    fields = {**shared(rng), **OWN[form](rng)}
    if rng.random() < 0.15:
        fields |= rng.choice(SPOILT[form])
    return f"{FORMATS[form]}ForCausalLM", f"{FORMATS[form]}Config", fields


def shared(rng):
    kv_heads = rng.choice([1, 2, 3])
    heads = kv_heads * rng.choice([1, 2, 3])
    vocab_size = rng.randint(9, 70)
    ids = {f"{role}_token_id": rng.choice([None, rng.randrange(vocab_size)]) for role in SPECIAL}
    return {
        "vocab_size": vocab_size,
        "hidden_size": heads * 2 * rng.randint(1, 6),
        "num_hidden_layers": rng.randint(1, 4),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": rng.randint(1, 40),
        "hidden_act": rng.choice(ACTIVATIONS),
        "max_position_embeddings": rng.randint(9, 60),
        "tie_word_embeddings": rng.random() < 0.5,
        "layer_norm_eps": 10 ** rng.uniform(-9, -1),
        "attention_bias": rng.random() < 0.5,
        "rope_parameters": rope(rng),
        **ids,
    }


def in_part(rng):
    """The rotation, of an even part of each head or as the format has it where nothing is said."""
    heads, pairs = rng.choice([1, 2, 3]), rng.randint(4, 12)
    fields = {
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "hidden_size": heads * 2 * pairs,
    }
    if rng.random() < 0.2:
        return {**fields, "hidden_size": heads * 16, "rope_parameters": None}
    part = rng.randint(2, pairs) / pairs
    parameters = {**rope(rng), "partial_rotary_factor": part}
    return {**fields, "rope_parameters": parameters, "partial_rotary_factor": part}


def neox(rng):
    fields = {**in_part(rng), "use_parallel_residual": rng.random() < 0.7}
    return {name: value for name, value in fields.items() if name != "num_key_value_heads"}


def gptj(rng):
    heads, pairs = rng.choice([1, 2, 3, 5]), rng.randint(1, 30)
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": None,
        "hidden_size": heads * (2 * pairs + rng.choice([0, 0, 1])),
        "rotary_dim": 2 * rng.randint(1, pairs),
        "n_inner": rng.choice([None, 7, 30]),
        "activation_function": rng.choice(ACTIVATIONS),
        "layer_norm_epsilon": 10 ** rng.uniform(-9, -1),
        "max_position_embeddings": 48,  # binding: the proof reads so many
        "rope_parameters": None,
    }


def codegen(rng):
    fields, heads = gptj(rng), rng.choice([4, 4, 8, 6])
    size = fields["hidden_size"] // fields["num_attention_heads"]
    return {**fields, "num_attention_heads": heads, "hidden_size": heads * size}


def persimmon(rng):
    fields = {**in_part(rng), "qk_layernorm": rng.random() < 0.5}
    return {name: value for name, value in fields.items() if name != "num_key_value_heads"}


def phi(rng):
    fields = in_part(rng)
    size = fields["hidden_size"] // fields["num_attention_heads"]
    other_sizes = {"hidden_size": 22, "head_dim": size}
    return {**fields, **rng.choice([{}, {"num_key_value_heads": 1}, other_sizes])}


def falcon(rng):
    is_new = rng.random() < 0.5
    return {
        "new_decoder_architecture": is_new,
        "num_kv_heads": rng.choice([1, 2, 3]) if is_new else rng.choice([None, 71]),
        "num_ln_in_parallel_attn": rng.choice([None, 1, 2] if is_new else [None, 1]),
        "multi_query": rng.random() < 0.6,
        "parallel_attn": is_new or rng.random() < 0.6,
        "bias": rng.random() < 0.5,
        "ffn_hidden_size": rng.choice([None, 7, 30]),
        "activation": rng.choice(ACTIVATIONS),
        "layer_norm_epsilon": 10 ** rng.uniform(-9, -1),
    }


def cohere(rng):
    return {
        "logit_scale": rng.choice([0.0625, 1.0, 3.0]),
        **rng.choice([{}, {"num_key_value_heads": None}, {"head_dim": 8}]),
    }


def cohere2(rng):
    layers = rng.randint(1, 5)
    kinds = ("full_attention", "sliding_attention")
    return {
        **cohere(rng),
        "num_hidden_layers": layers,
        "sliding_window": rng.choice([2, 3, 8, 50]),
        **rng.choice(
            [
                {},
                {"sliding_window_pattern": rng.randint(1, 3)},
                {"layer_types": [rng.choice(kinds) for _ in range(layers)]},
            ]
        ),
    }


def stablelm(rng):
    return {
        "use_parallel_residual": rng.random() < 0.7,
        "use_qkv_bias": rng.random() < 0.5,
        **in_part(rng),
    }


def granite(rng):
    return {
        "rms_norm_eps": 10 ** rng.uniform(-9, -1),
        "mlp_bias": rng.random() < 0.5,
        "embedding_multiplier": rng.choice([1.0, 12, 0.3]),
        "attention_multiplier": rng.choice([1.0, 0.0078125, 0.2]),
        "residual_multiplier": rng.choice([1.0, 0.22, 2]),
        "logits_scaling": rng.choice([1.0, 16, 49, 0.37]),
        **rng.choice([{}, {"num_key_value_heads": None}, {"head_dim": 8}]),
    }


def granite4(rng):
    """Without states and experts; the other intermediate_size is that of an expert."""
    layers, width = rng.randint(1, 4), rng.randint(1, 40)
    return {
        **granite(rng),
        "num_hidden_layers": layers,
        "layer_types": ["full_attention"] * layers,
        "shared_intermediate_size": width,
        "num_local_experts": 0,
        "position_embedding_type": rng.choice(["rope", None]),
        "mamba_n_heads": 1,
        "mlp_bias": False,
    }


def hyperclovax(rng):
    factor = rng.choice([{}, {"residual_multiplier": 1.0}])
    return {**granite(rng), **rng.choice([{"use_post_norm": False}, factor])}


def windows(rng):
    layers = rng.randint(1, 5)
    kinds = ("full_attention", "sliding_attention")
    return {
        "num_hidden_layers": layers,
        "layer_types": [rng.choice(kinds) for _ in range(layers)],
        "sliding_window": rng.choice([2, 3, 8, 50]),
        "rms_norm_eps": 10 ** rng.uniform(-9, -1),
    }


def cwm(rng):
    mlp_bias = {"mlp_bias": rng.random() < 0.5}
    return {**windows(rng), **mlp_bias, "bos_token_id": 1, "eos_token_id": [2, 3]}


def ministral(rng):
    return {**windows(rng), "head_dim": rng.choice([4, 8, 10])}


def jais2(rng):
    return {"mlp_bias": rng.random() < 0.5, **rng.choice([{}, {"head_dim": 8}])}


def vaultgemma(rng):
    return {
        **windows(rng),
        "hidden_activation": rng.choice(ACTIVATIONS),
        "query_pre_attn_scalar": rng.choice([4, 16, 256]),
        "attn_logit_softcapping": rng.choice([None, 2.0, 50.0]),
        "final_logit_softcapping": rng.choice([None, 3.0, 30.0]),
        **rng.choice([{}, {"head_dim": 8}]),
    }


OWN = {
    "gpt_neox": neox,
    "gptj": gptj,
    "codegen": codegen,
    "persimmon": persimmon,
    "phi": phi,
    "falcon": falcon,
    "cohere": cohere,
    "cohere2": cohere2,
    "stablelm": stablelm,
    "granite": granite,
    "granitemoehybrid": granite4,
    "hyperclovax": hyperclovax,
    "cwm": cwm,
    "ministral": ministral,
    "jais2": jais2,
    "vaultgemma": vaultgemma,
}
# Things that no conversion may pass over in silence.
PART = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 9.0, "partial_rotary_factor": 0.5}
}
SPOILT = {
    "gpt_neox": [{"head_dim": 4}],
    "gptj": [{"rotary_dim": 0}, {"rotary_dim": 3}, {"rotary_dim": 64}],
    "codegen": [{"rotary_dim": 0}, {"rotary_dim": 3}, {"rotary_dim": 64}],
    "persimmon": [{"head_dim": 4}],
    "phi": [{"qk_layernorm": True}],
    "falcon": [
        {"alibi": True},
        PART,
        {"num_ln_in_parallel_attn": 3},
        {"new_decoder_architecture": True, "parallel_attn": False},
        {"new_decoder_architecture": False, "multi_query": False, "num_kv_heads": 1},
    ],
    "cohere": [{"use_qk_norm": True}, PART],
    "cohere2": [PART, {"sliding_window": 1}],
    "stablelm": [{"qk_layernorm": True}, {"head_dim": 4}],
    "granite": [PART, {"residual_multiplier": 0}, {"attention_multiplier": 0.0}],
    "granitemoehybrid": [
        PART,
        {"num_local_experts": 2},
        {"layer_types": ["mamba"], "num_hidden_layers": 1},
    ],
    "hyperclovax": [PART, {"residual_multiplier": 0}],
    "cwm": [PART, {"sliding_window": 0}],
    "ministral": [PART, {"sliding_window": 0}],
    "jais2": [PART],
    "vaultgemma": [PART],
}
