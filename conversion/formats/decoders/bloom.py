"""BLOOM: GPT-2's layers with a bias by distance (alibi) for positions, and normed embeddings.

Its model counts distances from the first token and rounds them to the dtype of the weights, ours
counts them from each token. In float32 both are equal.
"""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import require, require_one_of, same
from ...engine.rules import Rule, linear
from ..shared import (
    ALIBI,
    COMMON_FIELDS,
    GPT2_FIXED,
    GPT2_LAYER,
    LAYER,
    NO_GROUPS,
    decoder_format,
    megatron_branches,
)

RULES = (
    Rule("model.embed_tokens.weight", "transformer.word_embeddings.weight"),
    *linear("model.embed_norm", "transformer.word_embeddings_layernorm"),
    *linear(f"{LAYER}.self_attn_norm", f"{GPT2_LAYER}.input_layernorm"),
    *megatron_branches(GPT2_LAYER, "self_attention"),
    *linear(f"{LAYER}.mlp_norm", f"{GPT2_LAYER}.post_attention_layernorm"),
    *linear("model.norm", "transformer.ln_f"),
)
FIELDS = FieldMap(
    "BLOOM",
    {
        **COMMON_FIELDS,
        **same("hidden_size", "attention_dropout", "initializer_range"),
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "layer_norm_epsilon": "layer_norm_eps",
        "hidden_dropout": "dropout",
    },
    {**GPT2_FIXED, **ALIBI, "embedding_norm": True},
    NO_GROUPS,
    has_head_dim=False,
)
LENGTH = 2048  # of the sequences that the releases were trained on
GELU = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")  # three names of one function


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", apply_residual_connection_post_layernorm=False)
    if theirs.pretraining_tp > 1:  # where it omits biases; else it changes nothing
        require(theirs, "hf_tformer", slow_but_exact=False)
    return {
        **FIELDS.to_ours(theirs),
        "intermediate_size": 4 * theirs.hidden_size,
        "hidden_act": GELU[0],
        "max_position_embeddings": getattr(theirs, "seq_length", None) or LENGTH,
    }


def to_theirs(ours: Config) -> Fields:
    fields = FIELDS.to_theirs(ours)
    require(ours, "BLOOM", intermediate_size=4 * ours.hidden_size)
    require_one_of(ours, "BLOOM", hidden_act=GELU)
    # No field of theirs, but some of their files and vLLM name it so.
    return {**fields, "seq_length": ours.max_position_embeddings}


FORMATS = (decoder_format("bloom", "Bloom", to_ours, to_theirs, "BLOOM, BLOOMZ", RULES, {}),)
