"""What the files of some architectures have, in fields and tensors, read back as fields of ours."""

from collections.abc import Callable, Mapping

from ...engine.aliases import Fields

Shapes = Mapping[str, tuple[int, ...]]  # of the tensors in a file
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


def t5(is_scaled: bool) -> Callable[[Fields], Fields]:
    """Return the reader of T5's fields; a file holds the last norm with the scale of the logits."""

    def read(told: Fields) -> Fields:
        return {
            "encoder_layers": told["block_count"],
            "decoder_layers": told.get("decoder_block_count", told["block_count"]),
            "decoder_start_token_id": told.get("decoder_start_token_id", 0),
            "logit_scale": told["embedding_length"] ** -0.5 if is_scaled else 1.0,
        }

    return read


def held_by_t5(shapes: Shapes) -> Fields:
    """Return the MLP that llama.cpp computes with these tensors, and where score biases are."""
    is_gated = "enc.blk.0.ffn_gate.weight" in shapes
    mlp = ("gated", "gelu_new") if is_gated else ("plain", "relu")
    per_layer = "_per_layer" if "enc.blk.1.attn_rel_b.weight" in shapes else ""
    return {"mlp_type": mlp[0], "hidden_act": mlp[1], "score_bias": f"relative{per_layer}"}


def held_by_bert(shapes: Shapes) -> Fields:
    return {"type_vocab_size": shapes.get("token_types.weight", (0,))[0]}
