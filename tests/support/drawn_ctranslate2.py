"""Random models of ours near what CTranslate2 serves: some it serves, the others are refused."""

import random

from support.families import DECODER, ENCODER, SEQ2SEQ

BIASES = ("attention_bias", "attention_output_bias", "mlp_bias")
LAYERNORM = {"norm_type": "layernorm", "mlp_type": "plain", **dict.fromkeys(BIASES, True)}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
ROPES = (
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "llama3", "factor": 8.0, **LLAMA3},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
)
ALIBI = {**LAYERNORM, "position_embedding_type": "none", "score_bias": "alibi"}
GEMMA = {
    "norm_type": "rmsnorm_offset",
    "scale_embedding": True,
    "hidden_act": "gelu_pytorch_tanh",
}
BEGINNINGS = {
    DECODER.name: (
        {},
        {"qk_norm": True},
        {"attention_bias": True},
        dict.fromkeys(BIASES, True),
        GEMMA,
        {**GEMMA, "norm_position": "both", "tie_word_embeddings": True},
        {**LAYERNORM, "position_embedding_type": "learned", "hidden_act": "gelu_new"},
        {**LAYERNORM, "position_embedding_type": "learned", "norm_position": "post"},
        {**LAYERNORM, "parallel_residual": "own"},
        {**LAYERNORM, "parallel_residual": None},
        {
            **LAYERNORM,
            "parallel_residual": "shared",
            "attention_bias": False,
            "attention_output_bias": False,
            "lm_head_bias": True,
        },
        {**ALIBI, "embedding_norm": True, "hidden_act": "gelu_new"},
        {
            **ALIBI,
            **dict.fromkeys(BIASES, False),
            "norm_type": "layernorm_unbiased",
            "hidden_act": "gelu",
        },
    ),
    SEQ2SEQ.name: (
        {},
        {"norm_position": "pre", "lm_head_bias": True},
        {"position_embedding_type": "learned", "embedding_norm": True},
        {"position_embedding_type": "learned", "embedding_norm": True, "norm_position": "pre"},
        *(
            {
                **dict.fromkeys(BIASES, False),
                "position_embedding_type": "none",
                "score_bias": score_bias,
                "norm_type": "rmsnorm",
                "norm_position": "pre",
                "mlp_type": mlp_type,
                "attention_scale": 1.0,
                "scale_embedding": False,
            }
            for score_bias, mlp_type in (("relative", "plain"), ("relative_per_layer", "gated"))
        ),
    ),
    ENCODER.name: tuple(
        {
            **LAYERNORM,
            "type_vocab_size": types,
            "position_embedding_type": "learned",
            "norm_position": "post",
            "embedding_norm": True,
            "lm_head_bias": True,
            "head_bias": True,
            "classifier_norm": False,
            "classifier_act": "tanh",
            "sliding_window": None,
        }
        for types in (0, 1, 2)
    ),
}
# As what each of them is served.
FORMS_OF = {
    DECODER.name: (
        *("llama", "qwen3", "qwen2", "llama", "gemma", "gemma2", "gpt2", "opt"),
        *("gpt_neox", "gpt_neox", "gptj", "bloom", "mpt"),
    ),
    SEQ2SEQ.name: ("marian", "pegasus", "bart", "mbart", "t5", "umt5"),
    ENCODER.name: ("distilbert", "bert", "bert"),
}
# What may be changed, one field at a time.
CHANGES = {
    "hidden_act": ("relu", "silu", "gelu", "gelu_new", "quick_gelu", "tanh"),
    "norm_position": ("pre", "post"),
    "tie_word_embeddings": (True, False),
    "attention_scale": (0.3, 1.0),
    "logit_scale": (0.5, 1.0),
    "scale_embedding": (True, False),
    "final_norm": (True, False),
    "embedding_norm": (True, False),
    "lm_head_bias": (True, False),
    **dict.fromkeys(BIASES, (True, False)),
    "sliding_window": (4,),
    "sinusoidal_layout": ("interleaved", "halves", "fairseq"),
    "attn_logit_softcapping": (30.0,),
    "final_logit_softcapping": (20.0,),
    "qk_norm": (True, "all"),
}


def draw(family, seed):
    """A class of ours and fields for it; not every one makes a model."""
    rng = random.Random(f"{family.name} {seed}")
    fields = completed({**sizes(rng), **rng.choice(BEGINNINGS[family.name])})
    norm = fields.get("norm_type", family.config_class.norm_type)
    epsilon = "rms_norm_eps" if norm.startswith("rmsnorm") else "layer_norm_eps"
    fields[epsilon] = 10 ** rng.uniform(-7, -2)
    if family is DECODER and fields.get("position_embedding_type", "rotary") == "rotary":
        theta = rng.choice([10000.0, 500.0])
        fields["rope_parameters"] = {**rng.choice(ROPES), "rope_theta": theta}
    known = family.config_class.__annotations__
    for name in rng.sample([name for name in CHANGES if name in known], rng.choice([0, 0, 1, 2])):
        fields[name] = rng.choice(CHANGES[name])
    return family.base_class if family is ENCODER else family.model_class, fields


def beginning(family, place):
    """A model that CTranslate2 serves, in odd sizes."""
    whole = {"hidden_size": 36, "num_attention_heads": 6, "head_dim": 6, "num_key_value_heads": 6}
    fields = completed({**whole, **BEGINNINGS[family.name][place]})
    # DistilBERT knows no other epsilon.
    return {"layer_norm_eps": 1e-12, **fields} if family is ENCODER else fields


def completed(fields):
    """BLOOM and MPT know one width of the MLP alone, UMT5 one scale of the logits."""
    width = fields["hidden_size"]
    if fields.get("score_bias") == "alibi":
        return {**fields, "intermediate_size": 4 * width}
    if fields.get("score_bias") == "relative_per_layer":
        return {**fields, "logit_scale": width**-0.5}
    return fields


def sizes(rng):
    pairs = rng.choice([1, 2, 3])
    heads = pairs * rng.choice([1, 1, 2, 3])
    hidden_size = heads * 2 * rng.randint(2, 5)
    even = hidden_size // heads
    return {
        "vocab_size": rng.choice([53, 97]),
        "hidden_size": hidden_size,
        "intermediate_size": rng.randint(9, 40),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([heads, pairs]),
        "head_dim": rng.choice([even, even, 6]),
        "max_position_embeddings": rng.randint(40, 60),
    }
