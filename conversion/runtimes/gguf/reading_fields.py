"""Fields of a GGUF file that some architectures have, read back as fields of ours."""

from collections.abc import Callable

from ...engine.aliases import Fields

CAPS = ("attn_logit_softcapping", "final_logit_softcapping")


def gemmas_scale(layers: int, layers_of_27b: int, width: int, heads: int, head_dim: int) -> float:
    """Return the attention scale of Gemma, which depends on the number of layers."""
    return (width // heads if layers == layers_of_27b else head_dim) ** -0.5


def window(told: Fields) -> Fields:
    size = told.get("attention.sliding_window")
    return {"sliding_window": size} if size else {"sliding_window": None, "layer_types": None}


def cohere(told: Fields) -> Fields:
    return {"logit_scale": told.get("logit_scale", 1.0), **window(told)}


def gemma(layers_of_27b: int) -> Callable[[Fields], Fields]:
    def read(told: Fields) -> Fields:
        sizes = ("embedding_length", "attention.head_count", "attention.key_length")
        scale = gemmas_scale(told["block_count"], layers_of_27b, *(told[name] for name in sizes))
        caps = {name: told.get(name) or None for name in CAPS}
        return {**window(told), **caps, "attention_scale": scale}

    return read


def no_window(told: Fields) -> Fields:
    return {"sliding_window": None, "layer_types": None, "no_rope_layers": None}


def granite(told: Fields) -> Fields:
    factor = told.get("embedding_scale", 1.0)
    return {
        "attention_scale": told.get("attention.scale"),
        "scale_embedding": False if factor == 1 else factor,
        "residual_multiplier": told.get("residual_scale", 1.0),
        "logit_scale": 1 / told.get("logit_scale", 1.0),
    }


def neox(told: Fields) -> Fields:
    return {"parallel_residual": "own" if told.get("use_parallel_residual", True) else None}
