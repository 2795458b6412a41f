"""StarCoder2: Llama's attention, LayerNorm, and an MLP without a gate."""

from ...engine.aliases import Config, Fields
from ...engine.format import (
    BIASES,
    DECODER,
    Format,
    carry,
    inverted,
    plain_attention_scale,
    require,
)
from ...engine.rotations import full_rotation
from ...engine.rules import Rule, linear
from .llama import ATTENTION, IGNORED, MLP, require_one_kind_of_layer

LAYER = "model.layers.{i}"
RULES = (
    Rule("model.embed_tokens.weight", "model.embed_tokens.weight"),
    *linear(f"{LAYER}.self_attn_norm", f"{LAYER}.input_layernorm"),
    *(rule for x in "qkvo" for rule in linear(f"{ATTENTION}.{x}_proj", f"{ATTENTION}.{x}_proj")),
    *linear(f"{LAYER}.mlp_norm", f"{LAYER}.post_attention_layernorm"),
    *linear(f"{MLP}.up_proj", f"{MLP}.c_fc"),
    *linear(f"{MLP}.down_proj", f"{MLP}.c_proj"),
    *linear("model.norm", "model.norm"),
    Rule("lm_head.weight", "lm_head.weight"),
)

# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_key_value_heads",
    "max_position_embeddings": "max_position_embeddings",
    "hidden_act": "hidden_act",
    "norm_epsilon": "layer_norm_eps",
    "sliding_window": "sliding_window",
    "attention_dropout": "attention_dropout",
    "residual_dropout": "dropout",
    "initializer_range": "initializer_range",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
}
FIXED = {
    "position_embedding_type": "rotary",
    "norm_type": "layernorm",
    "norm_position": "pre",
    "final_norm": True,
    "embedding_norm": False,
    "qk_norm": False,
    "mlp_type": "plain",
    "lm_head_bias": False,
    "logit_scale": 1.0,
    "scale_embedding": False,
}


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", layer_types=None)  # transformers' model does not read them
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        **dict.fromkeys(BIASES, theirs.use_bias),
        "head_dim": getattr(theirs, "head_dim", None),  # no field of theirs, but read where it is
        "rope_parameters": full_rotation(theirs, "StarCoder2"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "StarCoder2", **FIXED, **dict.fromkeys(BIASES, ours.attention_bias))
    plain_attention_scale(ours, "StarCoder2")
    require_one_kind_of_layer(ours, "StarCoder2")
    has_usual_heads = ours.head_dim * ours.num_attention_heads == ours.hidden_size
    return {
        **carry(ours, inverted(FIELDS)),
        **({} if has_usual_heads else {"head_dim": ours.head_dim}),
        "embedding_dropout": ours.dropout,
        "use_bias": ours.attention_bias,
        "rope_parameters": full_rotation(ours, "StarCoder2"),
    }


FORMATS = (
    Format(
        "starcoder2",
        RULES,
        to_ours,
        to_theirs,
        ("Starcoder2Config", "Starcoder2ForCausalLM"),
        DECODER,
        IGNORED,
        released="StarCoder2 3B, 7B and 15B",
    ),
)
