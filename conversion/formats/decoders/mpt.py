"""MPT: BLOOM's distances, and not a single bias.

What its configuration says of positions, biases, widths and scales of logits is not read by the
model of transformers. What differs from the releases there is refused.
"""

from ...engine.aliases import Config, Fields
from ...engine.format import BIASES, DECODER, Format, carry, choose, inverted, require, whole_heads
from ...engine.rules import Rule
from ...engine.transforms import Split

OURS, THEIRS = "model.layers.{i}", "transformer.blocks.{i}"
RULES = (
    Rule("model.embed_tokens.weight", "transformer.wte.weight"),
    Rule(f"{OURS}.self_attn_norm.weight", f"{THEIRS}.norm_1.weight"),
    Rule(
        tuple(f"{OURS}.self_attn.{x}_proj.weight" for x in "qkv"),
        f"{THEIRS}.attn.Wqkv.weight",
        Split(3),
    ),
    Rule(f"{OURS}.self_attn.o_proj.weight", f"{THEIRS}.attn.out_proj.weight"),
    Rule(f"{OURS}.mlp_norm.weight", f"{THEIRS}.norm_2.weight"),
    Rule(f"{OURS}.mlp.up_proj.weight", f"{THEIRS}.ffn.up_proj.weight"),
    Rule(f"{OURS}.mlp.down_proj.weight", f"{THEIRS}.ffn.down_proj.weight"),
    Rule("model.norm.weight", "transformer.norm_f.weight"),
    Rule("lm_head.weight", "lm_head.weight"),
)

# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "max_seq_len": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "dropout",
    "initializer_range": "initializer_range",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
}
FIXED = {
    "position_embedding_type": "none",
    "score_bias": "alibi",
    "norm_type": "layernorm_unbiased",
    "norm_position": "pre",
    "final_norm": True,
    "embedding_norm": False,
    "qk_norm": False,
    "mlp_type": "plain",
    "hidden_act": "gelu",
    **dict.fromkeys(BIASES, False),
    "lm_head_bias": False,
    "logit_scale": 1.0,
    "scale_embedding": False,
    "sliding_window": None,
}
THEIR_ATTENTION = {
    "attn_type": "multihead_attention",
    "alibi": True,
    "alibi_bias_max": 8,
    "clip_qkv": None,
    "prefix_lm": False,
    "qk_ln": False,
    "attn_uses_sequence_id": False,
}


def to_ours(theirs: Config) -> Fields:
    require(theirs.attn_config, "hf_tformer", **THEIR_ATTENTION)
    require(theirs, "hf_tformer", expansion_ratio=4, no_bias=True, logit_scale=None)
    choose(theirs, "hf_tformer", norm_type=("low_precision_layernorm", "layernorm"))
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "num_key_value_heads": theirs.n_heads,
        "intermediate_size": 4 * theirs.d_model,
        "attention_scale": theirs.attn_config.softmax_scale,
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "MPT", **FIXED, intermediate_size=4 * ours.hidden_size)
    whole_heads(ours, "MPT")
    scale = ours.attention_scale
    return {
        **carry(ours, inverted(FIELDS)),
        "emb_pdrop": ours.dropout,
        "attn_config": {"softmax_scale": None if scale is None else float(scale)},
    }


FORMATS = (
    Format(
        "mpt",
        RULES,
        to_ours,
        to_theirs,
        ("MptConfig", "MptForCausalLM"),
        DECODER,
        released="MPT 7B, 30B",
    ),
)
