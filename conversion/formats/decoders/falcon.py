"""Falcon: queries, their key and their value in one tensor, and norms by generation.

Falcon-7B has one norm for attention and the MLP beside it, Falcon-40B one for each, Falcon-11B one
again. Falcon-RW adds distances to its scores (alibi), rounded in a way that no field of ours says.
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
)
from ...engine.rotations import full_rotation
from ...engine.rules import Rule, linear
from ..shared_megatron import OURS, branches
from .llama import ALL_OF_THEM

THEIRS = "transformer.h.{i}"
REST = (
    Rule("model.embed_tokens.weight", "transformer.word_embeddings.weight"),
    *branches(THEIRS, "self_attention"),
    *linear("model.norm", "transformer.ln_f"),
)

# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "ffn_hidden_size": "intermediate_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "max_position_embeddings": "max_position_embeddings",
    "activation": "hidden_act",
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
FIXED = {
    **ALL_OF_THEM,
    "norm_type": "layernorm",
    "qk_norm": False,
    "mlp_type": "plain",
    "sliding_window": None,
}


def parallel_residual(theirs: Config) -> str | None:
    """Which of our arrangements the fields of theirs mean together."""
    if theirs.new_decoder_architecture:
        require(theirs, "hf_tformer", parallel_attn=True)
        choose(theirs, "hf_tformer", num_ln_in_parallel_attn=(None, 1, 2))
        return "shared" if theirs.num_ln_in_parallel_attn == 1 else "own"
    choose(theirs, "hf_tformer", num_ln_in_parallel_attn=(None, 1))
    return "shared" if theirs.parallel_attn else None


def rules(theirs: Config) -> tuple[Rule, ...]:
    has_own = parallel_residual(theirs) == "own"
    names = ("ln_attn", "ln_mlp") if has_own else ("input_layernorm", "post_attention_layernorm")
    return (
        *REST,
        *linear(f"{OURS}.self_attn_norm", f"{THEIRS}.{names[0]}"),
        *linear(f"{OURS}.mlp_norm", f"{THEIRS}.{names[1]}"),
    )


def to_ours(theirs: Config) -> Fields:
    choose(theirs, "hf_tformer", alibi=(False, None))
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        **dict.fromkeys(BIASES, bool(theirs.bias)),
        "num_key_value_heads": key_heads(theirs),
        "parallel_residual": parallel_residual(theirs),
        "rope_parameters": full_rotation(theirs, "Falcon"),
    }


def key_heads(theirs: Config) -> int:
    """The older generation has one or as many as queries, whatever num_kv_heads says of one."""
    if theirs.new_decoder_architecture:
        return theirs.num_kv_heads
    if theirs.multi_query:
        return 1
    require(theirs, "hf_tformer", num_kv_heads=theirs.num_attention_heads)
    return theirs.num_attention_heads


def to_theirs(ours: Config) -> Fields:
    require(ours, "Falcon", **FIXED, **dict.fromkeys(BIASES, ours.attention_bias))
    require(ours, "Falcon", head_dim=ours.hidden_size / ours.num_attention_heads)
    plain_attention_scale(ours, "Falcon")
    return {
        **carry(ours, inverted(FIELDS)),
        "bias": ours.attention_bias,
        **generation(ours),
        "rope_parameters": full_rotation(ours, "Falcon"),
    }


def generation(ours: Config) -> Fields:
    """The older one where it has a word for the heads of keys: every reader knows it."""
    parallel, old_heads = ours.parallel_residual, (1, ours.num_attention_heads)
    if parallel == "own" or (parallel and ours.num_key_value_heads not in old_heads):
        return {
            "new_decoder_architecture": True,
            "num_ln_in_parallel_attn": 2 if parallel == "own" else 1,
            "num_kv_heads": ours.num_key_value_heads,
        }
    choose(ours, "Falcon with one branch after the other", num_key_value_heads=old_heads)
    return {"parallel_attn": bool(parallel), "multi_query": ours.num_key_value_heads == 1}


FORMATS = (
    Format(
        "falcon",
        rules,
        to_ours,
        to_theirs,
        ("FalconConfig", "FalconForCausalLM"),
        DECODER,
        released="Falcon 7B, 11B, 40B, 180B",
    ),
)
