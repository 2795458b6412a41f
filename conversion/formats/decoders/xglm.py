"""XGLM: OPT's layers behind M2M100's sinusoids.

Its model counts positions from two, whatever the id of padding; fairseq and ours begin behind that
id. The releases have one there.
"""

from ...engine.aliases import Config, Fields
from ...engine.format import (
    BIASES,
    DECODER,
    Format,
    carry,
    inverted,
    plain_attention_scale,
    require,
    whole_heads,
)
from ..encoder_decoders.m2m_100 import COMPUTED, FAIRSEQ
from . import opt

RULES = tuple(
    rule
    for rule in opt.rules("model", "layer_norm", "lm_head.weight")
    if rule.ours != "model.positions.weight"
)
IGNORED = {"model.embed_positions.weights": COMPUTED}

# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "ffn_dim": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "attention_heads": "num_attention_heads",
    "max_position_embeddings": "max_position_embeddings",
    "activation_function": "hidden_act",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "initializer_range",
    "scale_embedding": "scale_embedding",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
}
FIXED = {
    **opt.FIXED,
    **FAIRSEQ,
    **dict.fromkeys(BIASES, True),
    "norm_position": "pre",
    "final_norm": True,
}


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", pad_token_id=1, add_cross_attention=False)
    return {**carry(theirs, FIELDS), **FIXED, "num_key_value_heads": theirs.attention_heads}


def to_theirs(ours: Config) -> Fields:
    require(ours, "XGLM", **FIXED, pad_token_id=1)
    whole_heads(ours, "XGLM")
    plain_attention_scale(ours, "XGLM")
    return carry(ours, inverted(FIELDS))


FORMATS = (
    Format(
        "xglm",
        RULES,
        to_ours,
        to_theirs,
        ("XGLMConfig", "XGLMForCausalLM"),
        DECODER,
        IGNORED,
        released="XGLM",
    ),
)
