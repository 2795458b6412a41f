"""Random configurations of transformers' decoders whose norms, rotations or windows are their own.

Every field that changes a logit is drawn. All of these convert.
"""

import random

import transformers

from support.drawn_encoders import ACTIVATIONS, rope

CLASSES = {
    "olmo2": "Olmo2",
    "olmo3": "Olmo3",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "gemma3_text": "Gemma3",
    "exaone4": "Exaone4",
    "smollm3": "SmolLM3",
    "glm4": "Glm4",
}
KINDS = ("full_attention", "sliding_attention")


def draw(form, seed):
    """A model of transformers; its constructors refuse some of the sizes."""
    rng = random.Random(f"{form} {seed}")
    fields = {**shared(rng), **globals()[form](rng)}
    name = CLASSES[form]
    config_name = "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config"
    config = getattr(transformers, config_name)(**fields)
    return getattr(transformers, f"{name}ForCausalLM")(config)


def shared(rng):
    kv_heads = rng.choice([1, 2, 3])
    vocab_size = rng.choice([29, 53, 61])
    return {
        "vocab_size": vocab_size,
        "num_attention_heads": kv_heads * rng.choice([1, 2]),
        "num_key_value_heads": kv_heads,
        "hidden_size": 12 * rng.randint(1, 3),
        "intermediate_size": rng.randint(7, 40),
        "head_dim": rng.choice([2, 8, 12]),
        "num_hidden_layers": rng.randint(1, 4),
        "max_position_embeddings": rng.choice([16, 64]),
        "hidden_act": rng.choice(ACTIVATIONS),
        "rms_norm_eps": 10 ** rng.uniform(-9, -1),
        "tie_word_embeddings": rng.random() < 0.5,
        "rope_parameters": rope(rng),
        "attention_bias": rng.random() < 0.3,
        "pad_token_id": rng.choice([None, 0, 1]),
        "bos_token_id": rng.choice([None, 2]),
        "eos_token_id": rng.choice([None, 3, [3, 4]]),
    }


def kinds(rng):
    """Layers that all slide, that never do, or as the format has them where nothing is said."""
    layers = rng.randint(1, 4)
    drawn = {"layer_types": [rng.choice(KINDS) for _ in range(layers)]}
    window = {"sliding_window": rng.choice([2, 3, 5, 40])}
    return {"num_hidden_layers": layers, **window, **rng.choice([{}, drawn, drawn])}


def ropes(rng):
    return rng.choice([{}, {kind: rope(rng) for kind in KINDS}])


def olmo2(rng):
    return {}


def olmo3(rng):
    return {**kinds(rng), "rope_parameters": ropes(rng) or None}


def gemma(rng):
    return {"use_bidirectional_attention": rng.choice([None, False])}


def gemma2(rng):
    return {
        **gemma(rng),
        **kinds(rng),
        "hidden_activation": rng.choice(ACTIVATIONS),
        "query_pre_attn_scalar": rng.choice([1, 7, 144, 256]),
        "attn_logit_softcapping": rng.choice([None, 1.5, 50.0]),
        "final_logit_softcapping": rng.choice([None, 1.5, 30.0]),
    }


def gemma3_text(rng):
    return {**gemma2(rng), "rope_parameters": ropes(rng) or None}


def exaone4(rng):
    return rng.choice(
        [
            kinds(rng),
            {"num_hidden_layers": 3, "sliding_window": None, "layer_types": [*KINDS[:1] * 3]},
        ]
    )


def smollm3(rng):
    windows = {**kinds(rng), "use_sliding_window": True}
    turning = {"no_rope_layers": [rng.choice([0, 1]) for _ in range(4)]}
    interval = {"no_rope_layer_interval": rng.randint(1, 4)}
    return {**rng.choice([{}, windows]), **rng.choice([interval, turning]), "mlp_bias": True}


def glm4(rng):
    part = {"partial_rotary_factor": rng.choice([0.5, 1.0])}
    # Where nothing ends a text, it puts ids of its own that no small vocabulary holds.
    return {"rope_parameters": {**rope(rng), **part}, "head_dim": 8, "eos_token_id": 3}
