"""MPT: BLOOM's attention bias by distance (alibi), and no other bias.

transformers' model ignores the fields of its configuration for positions, biases, widths and scales
of logits. Values that differ from those of the releases are refused.
"""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import BIASES, require, require_one_of
from ...engine.rules import Rule, weights
from ...engine.transforms import Split
from ..shared import ALIBI, COMMON_FIELDS, GPT2_FIXED, HEAD, LAYER, NO_GROUPS, QKV, decoder_format

BLOCK = "transformer.blocks.{i}"
MODULES = {
    "self_attn_norm": "norm_1",
    "self_attn.o_proj": "attn.out_proj",
    "mlp_norm": "norm_2",
    "mlp.up_proj": "ffn.up_proj",
    "mlp.down_proj": "ffn.down_proj",
}
RULES = (
    Rule("model.embed_tokens.weight", "transformer.wte.weight"),
    Rule(tuple(f"{LAYER}.{name}.weight" for name in QKV), f"{BLOCK}.attn.Wqkv.weight", Split(3)),
    *weights(LAYER, BLOCK, MODULES),
    Rule("model.norm.weight", "transformer.norm_f.weight"),
    HEAD,
)
FIELDS = FieldMap(
    "MPT",
    {
        **COMMON_FIELDS,
        "d_model": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "max_seq_len": "max_position_embeddings",
        "layer_norm_epsilon": "layer_norm_eps",
        "resid_pdrop": "dropout",
        "initializer_range": "initializer_range",
    },
    {
        **GPT2_FIXED,
        **ALIBI,
        "norm_type": "layernorm_unbiased",
        "hidden_act": "gelu",
        **dict.fromkeys(BIASES, False),
    },
    NO_GROUPS,
    has_head_dim=False,
    checks_scale=False,
)
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
    require_one_of(theirs, "hf_tformer", norm_type=("low_precision_layernorm", "layernorm"))
    return {
        **FIELDS.to_ours(theirs),
        "intermediate_size": 4 * theirs.d_model,
        "attention_scale": theirs.attn_config.softmax_scale,
    }


def to_theirs(ours: Config) -> Fields:
    fields = FIELDS.to_theirs(ours)
    require(ours, "MPT", intermediate_size=4 * ours.hidden_size)
    scale = ours.attention_scale
    return {
        **fields,
        "emb_pdrop": ours.dropout,
        "attn_config": {"softmax_scale": None if scale is None else float(scale)},
    }


FORMATS = (decoder_format("mpt", "Mpt", to_ours, to_theirs, "MPT 7B, 30B", RULES, {}),)
