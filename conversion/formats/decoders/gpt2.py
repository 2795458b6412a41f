"""GPT-2: its projections lie transposed, and query, key and value in one tensor."""

from ...engine.aliases import Config, Fields
from ...engine.format import (
    DECODER,
    Format,
    carry,
    inverted,
    plain_attention_scale,
    require,
    whole_heads,
)
from ...engine.rules import Rule, linear
from ...engine.transforms import Split, Transpose

OURS, THEIRS = "model.layers.{i}", "transformer.h.{i}"
RULES = (
    Rule("model.embed_tokens.weight", "transformer.wte.weight"),
    Rule("model.positions.weight", "transformer.wpe.weight"),
    *linear(f"{OURS}.self_attn_norm", f"{THEIRS}.ln_1"),
    *(
        Rule(
            tuple(f"{OURS}.self_attn.{x}_proj.{kind}" for x in "qkv"),
            f"{THEIRS}.attn.c_attn.{kind}",
            Split(3, transposed=kind == "weight"),
        )
        for kind in ("weight", "bias")
    ),
    *linear(f"{OURS}.self_attn.o_proj", f"{THEIRS}.attn.c_proj", Transpose()),
    *linear(f"{OURS}.mlp_norm", f"{THEIRS}.ln_2"),
    *linear(f"{OURS}.mlp.up_proj", f"{THEIRS}.mlp.c_fc", Transpose()),
    *linear(f"{OURS}.mlp.down_proj", f"{THEIRS}.mlp.c_proj", Transpose()),
    *linear("model.norm", "transformer.ln_f"),
    Rule("lm_head.weight", "lm_head.weight"),
)
IGNORED = {
    f"{THEIRS}.attn.bias": "the causal mask, which old checkpoints hold",
    f"{THEIRS}.attn.masked_bias": "the score of a hidden key, which old checkpoints hold",
}

# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "initializer_range": "initializer_range",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
}
FIXED = {
    "position_embedding_type": "learned",
    "norm_type": "layernorm",
    "norm_position": "pre",
    "final_norm": True,
    "embedding_norm": False,
    "qk_norm": False,
    "mlp_type": "plain",
    "attention_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
    "lm_head_bias": False,
    "logit_scale": 1.0,
    "scale_embedding": False,
    "sliding_window": None,
}


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "num_key_value_heads": theirs.n_head,
        "intermediate_size": theirs.n_inner or 4 * theirs.n_embd,
        "attention_scale": None if theirs.scale_attn_weights else 1.0,
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "GPT-2", **FIXED)
    whole_heads(ours, "GPT-2")
    is_unscaled = ours.attention_scale == 1.0
    if not is_unscaled:
        plain_attention_scale(ours, "GPT-2")
    return {
        **carry(ours, inverted(FIELDS)),
        "embd_pdrop": ours.dropout,
        "n_inner": ours.intermediate_size,
        "scale_attn_weights": not is_unscaled,
    }


FORMATS = (
    Format(
        "gpt2",
        RULES,
        to_ours,
        to_theirs,
        ("GPT2Config", "GPT2LMHeadModel"),
        DECODER,
        IGNORED,
        released="GPT-2, DistilGPT2, DialoGPT",
    ),
)
