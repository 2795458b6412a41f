"""Falcon: queries, their key and their value in one tensor, and norms that differ by generation.

Falcon-7B has one norm for attention and the MLP beside it, Falcon-40B one for each, Falcon-11B one
again. Falcon-RW has an attention bias by distance (alibi), rounded as no field of ours expresses.
"""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import BIASES, require, require_one_of, without
from ...engine.rotations import full_rotation
from ...engine.rules import Rule, linear
from ..shared import (
    GPT2_LAYER,
    LAYER,
    LLAMA_FIELDS,
    NEOX_FIXED,
    ONE_BIAS_FOR_ALL,
    decoder_format,
    megatron_branches,
)

REST = (
    Rule("model.embed_tokens.weight", "transformer.word_embeddings.weight"),
    *megatron_branches(GPT2_LAYER, "self_attention"),
    *linear("model.norm", "transformer.ln_f"),
)
OTHER_NAMES = ("intermediate_size", "hidden_act", "rms_norm_eps", "num_key_value_heads")
FIELDS = FieldMap(
    "Falcon",
    {
        **without(LLAMA_FIELDS, *OTHER_NAMES),
        "ffn_hidden_size": "intermediate_size",
        "activation": "hidden_act",
        "layer_norm_epsilon": "layer_norm_eps",
        "hidden_dropout": "dropout",
        "bias": "attention_bias",
    },
    NEOX_FIXED,
    ONE_BIAS_FOR_ALL,
    full_rotation,
    has_head_dim=False,
)


def parallel_residual(theirs: Config) -> str | None:
    """Return the arrangement of ours that several fields of theirs mean together."""
    if theirs.new_decoder_architecture:
        require(theirs, "hf_tformer", parallel_attn=True)
        require_one_of(theirs, "hf_tformer", num_ln_in_parallel_attn=(None, 1, 2))
        return "shared" if theirs.num_ln_in_parallel_attn == 1 else "own"
    require_one_of(theirs, "hf_tformer", num_ln_in_parallel_attn=(None, 1))
    return "shared" if theirs.parallel_attn else None


def rules(theirs: Config) -> tuple[Rule, ...]:
    has_own = parallel_residual(theirs) == "own"
    names = ("ln_attn", "ln_mlp") if has_own else ("input_layernorm", "post_attention_layernorm")
    return (
        *REST,
        *linear(f"{LAYER}.self_attn_norm", f"{GPT2_LAYER}.{names[0]}"),
        *linear(f"{LAYER}.mlp_norm", f"{GPT2_LAYER}.{names[1]}"),
    )


def to_ours(theirs: Config) -> Fields:
    require_one_of(theirs, "hf_tformer", alibi=(False, None))
    return {
        **FIELDS.to_ours(theirs),
        **dict.fromkeys(BIASES, bool(theirs.bias)),
        "num_key_value_heads": key_heads(theirs),
        "parallel_residual": parallel_residual(theirs),
    }


def key_heads(theirs: Config) -> int:
    """Return how many heads of keys there are: the older generation has one, or one per query."""
    if theirs.new_decoder_architecture:
        return theirs.num_kv_heads
    if theirs.multi_query:
        return 1
    require(theirs, "hf_tformer", num_kv_heads=theirs.num_attention_heads)
    return theirs.num_attention_heads


def to_theirs(ours: Config) -> Fields:
    return {**FIELDS.to_theirs(ours), **generation(ours)}


def generation(ours: Config) -> Fields:
    """Return the fields of the older generation, which all readers know, if it has such heads."""
    parallel, old_heads = ours.parallel_residual, (1, ours.num_attention_heads)
    if parallel == "own" or (parallel and ours.num_key_value_heads not in old_heads):
        return {
            "new_decoder_architecture": True,
            "num_ln_in_parallel_attn": 2 if parallel == "own" else 1,
            "num_kv_heads": ours.num_key_value_heads,
        }
    require_one_of(ours, "Falcon with one branch after the other", num_key_value_heads=old_heads)
    return {"parallel_attn": bool(parallel), "multi_query": ours.num_key_value_heads == 1}


FORMATS = (
    decoder_format("falcon", "Falcon", to_ours, to_theirs, "Falcon 7B, 11B, 40B, 180B", rules, {}),
)
