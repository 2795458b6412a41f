"""BLOOM: GPT-2's layers, with no positions but distances that lower the scores, and one norm more
behind the embeddings.

Its model counts distances from the first token and rounds them to the dtype of the weights, where
ours counts from each token. In float32 that is the same.
"""

from ...engine.aliases import Config, Fields
from ...engine.format import (
    BIASES,
    DECODER,
    Format,
    carry,
    choose,
    inverted,
    plain_attention_scale,
    require,
    whole_heads,
)
from ...engine.rules import Rule, linear
from ..shared_megatron import OURS, branches

THEIRS = "transformer.h.{i}"
RULES = (
    Rule("model.embed_tokens.weight", "transformer.word_embeddings.weight"),
    *linear("model.embed_norm", "transformer.word_embeddings_layernorm"),
    *linear(f"{OURS}.self_attn_norm", f"{THEIRS}.input_layernorm"),
    *branches(THEIRS, "self_attention"),
    *linear(f"{OURS}.mlp_norm", f"{THEIRS}.post_attention_layernorm"),
    *linear("model.norm", "transformer.ln_f"),
)

# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "layer_norm_epsilon": "layer_norm_eps",
    "hidden_dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "initializer_range": "initializer_range",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
}
LENGTH = 2048  # of the texts that the releases were trained on
GELU = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")  # three names of one function
FIXED = {
    "position_embedding_type": "none",
    "score_bias": "alibi",
    "norm_type": "layernorm",
    "norm_position": "pre",
    "final_norm": True,
    "embedding_norm": True,
    "qk_norm": False,
    "mlp_type": "plain",
    **dict.fromkeys(BIASES, True),
    "lm_head_bias": False,
    "logit_scale": 1.0,
    "scale_embedding": False,
    "sliding_window": None,
}


def to_ours(theirs: Config) -> Fields:
    # The second leaves biases out, and only where pretraining_tp is more than one.
    require(theirs, "hf_tformer", apply_residual_connection_post_layernorm=False)
    require(theirs, "hf_tformer", slow_but_exact=False)
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "num_key_value_heads": theirs.n_head,
        "intermediate_size": 4 * theirs.hidden_size,
        "hidden_act": GELU[0],
        "max_position_embeddings": getattr(theirs, "seq_length", None) or LENGTH,
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "BLOOM", **FIXED, intermediate_size=4 * ours.hidden_size)
    choose(ours, "BLOOM", hidden_act=GELU)
    whole_heads(ours, "BLOOM")
    plain_attention_scale(ours, "BLOOM")
    # No field of theirs, but some of their files and vLLM name it so.
    return {**carry(ours, inverted(FIELDS)), "seq_length": ours.max_position_embeddings}


FORMATS = (
    Format(
        "bloom",
        RULES,
        to_ours,
        to_theirs,
        ("BloomConfig", "BloomForCausalLM"),
        DECODER,
        released="BLOOM, BLOOMZ",
    ),
)
