"""Random configurations of BLOOM, MPT, XGLM, M2M100 and nanochat, some of which do not convert.

Every field that changes an answer is drawn, and what old folders hold besides.
"""

import random

FORMATS = {
    "bloom": ("BloomForCausalLM", "BloomConfig"),
    "mpt": ("MptForCausalLM", "MptConfig"),
    "xglm": ("XGLMForCausalLM", "XGLMConfig"),
    "nanochat": ("NanoChatForCausalLM", "NanoChatConfig"),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config"),
}
ACTIVATIONS = ["gelu", "gelu_new", "relu", "silu", "tanh", "quick_gelu"]


def draw(form, seed):
    """A class of transformers and a configuration for it; not all make a model, or convert."""
    rng = random.Random(f"{form} {seed}")
    heads = rng.choice([1, 2, 3, 4, 5, 7, 8])
    width = heads * 2 * rng.randint(1, 4)
    fields = {**shared(rng), **OWN[form](rng, heads, width)}
    if rng.random() < 0.15:
        fields |= rng.choice(SPOILT[form])
    return (*FORMATS[form], fields)


def shared(rng):
    vocab_size = rng.randint(9, 70)
    return {
        "vocab_size": vocab_size,
        "tie_word_embeddings": rng.random() < 0.7,
        "bos_token_id": rng.choice([None, rng.randrange(vocab_size)]),
        "eos_token_id": rng.choice([None, 2, [2, 5]]),
        "pad_token_id": rng.choice([None, 1, rng.randrange(8)]),
    }


def bloom(rng, heads, width):
    return {
        "n_head": heads,
        "n_layer": rng.randint(1, 4),
        rng.choice(["hidden_size", "n_embed"]): width,
        "layer_norm_epsilon": 10 ** rng.uniform(-9, -1),
        "hidden_dropout": rng.choice([0, 0.1]),
        "attention_dropout": rng.choice([0.0, 0.1]),
        "pretraining_tp": rng.choice([1, 4]),
        **rng.choice([{}, {"seq_length": None}, {"seq_length": 9, "offset_alibi": 100}]),
    }


def mpt(rng, heads, width):
    attention = {"attn_impl": rng.choice(["torch", "flash", "triton"])}
    if rng.random() < 0.4:
        attention["softmax_scale"] = rng.uniform(0.05, 2.0)
    return {
        "n_heads": heads,
        "n_layers": rng.randint(1, 4),
        "d_model": width,
        "max_seq_len": rng.randint(6, 99),
        "layer_norm_epsilon": 10 ** rng.uniform(-9, -1),
        "resid_pdrop": rng.choice([0, 0.1]),
        "learned_pos_emb": rng.random() < 0.5,
        "norm_type": rng.choice(["low_precision_layernorm", "layernorm"]),
        "attn_config": rng.choice([None, attention]),
        "use_cache": rng.random() < 0.5,
    }


def xglm(rng, heads, width):
    return {
        "attention_heads": heads,
        "num_layers": rng.randint(1, 4),
        "d_model": max(4, width),
        "ffn_dim": rng.randint(1, 40),
        "activation_function": rng.choice(ACTIVATIONS),
        "max_position_embeddings": rng.randint(4, 99),
        "scale_embedding": rng.random() < 0.6,
        "layerdrop": rng.choice([0.0, 0.2]),
        "pad_token_id": 1,
    }


def m2m_100(rng, heads, width):
    ffn_dim = rng.randint(1, 40)
    return {
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_layers": rng.randint(1, 3),
        "decoder_layers": rng.randint(1, 3),
        "encoder_ffn_dim": ffn_dim,
        "decoder_ffn_dim": ffn_dim,
        "d_model": max(4, width),
        "activation_function": rng.choice(ACTIVATIONS),
        "max_position_embeddings": rng.randint(4, 99),
        "scale_embedding": rng.random() < 0.6,
        "pad_token_id": rng.choice([0, 1, rng.randrange(8)]),
        "decoder_start_token_id": rng.choice([2, rng.randrange(9)]),
    }


def nanochat(rng, heads, width):
    kinds = ["default", "linear", "dynamic", "llama3"]
    rope = {"rope_type": rng.choice(kinds), "rope_theta": 10 ** rng.uniform(1, 6)}
    if rope["rope_type"] != "default":
        rope["factor"] = rng.choice([1.0, 2.5, 8.0])
    if rope["rope_type"] == "llama3":
        rope |= {"original_max_position_embeddings": 8}
        rope |= {"low_freq_factor": 0.5, "high_freq_factor": 2.0}
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([None, 1, heads]),
        "num_hidden_layers": rng.randint(1, 4),
        "hidden_size": width,
        "head_dim": rng.choice([width // heads, 4, 6]),
        "intermediate_size": rng.randint(1, 40),
        "hidden_act": rng.choice([*ACTIVATIONS, "relu2"]),
        "rms_norm_eps": 10 ** rng.uniform(-9, -1),
        "attention_bias": rng.random() < 0.4,
        "final_logit_softcapping": rng.choice([None, 1.5, 15.0]),
        "max_position_embeddings": rng.randint(4, 99),
        "rope_parameters": rope,
    }


OWN = {"bloom": bloom, "mpt": mpt, "xglm": xglm, "m2m_100": m2m_100, "nanochat": nanochat}
# One thing that no conversion may pass over in silence.
SPOILT = {
    "bloom": [
        {"apply_residual_connection_post_layernorm": True},
        {"slow_but_exact": True, "pretraining_tp": 2},
        {"eos_token_id": 10**6},
    ],
    "mpt": [
        {"attn_config": {"clip_qkv": 6.0}},
        {"attn_config": {"alibi": False}},
        {"attn_config": {"alibi_bias_max": 16}},
        {"attn_config": {"qk_ln": True}},
        {"no_bias": False},
        {"logit_scale": 0.5},
        {"expansion_ratio": 2},
    ],
    "xglm": [{"pad_token_id": 4}, {"pad_token_id": None}],
    "nanochat": [
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
        {"eos_token_id": 10**6},
    ],
    "m2m_100": [
        {"decoder_ffn_dim": 41},
        {"pad_token_id": None},
        {"encoder_layers": 0},
    ],
}
