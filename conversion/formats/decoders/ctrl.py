"""CTRL: sinusoids as in the first transformer, norms first, and a bias in its tied head."""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import require, same
from ...engine.rules import Rule, linear, linears
from ..shared import COMMON_FIELDS, GPT2_FIXED, GPT2_LAYER, LAYER, NO_GROUPS, decoder_format

RULES = (
    Rule("model.embed_tokens.weight", "transformer.w.weight"),
    *linears(
        LAYER,
        GPT2_LAYER,
        {
            "self_attn_norm": "layernorm1",
            **{f"self_attn.{x}_proj": f"multi_head_attention.W{x}" for x in "qkv"},
            "self_attn.o_proj": "multi_head_attention.dense",
            "mlp_norm": "layernorm2",
            "mlp.up_proj": "ffn.0",
            "mlp.down_proj": "ffn.2",
        },
    ),
    *linear("model.norm", "transformer.layernorm"),
    *linear("lm_head", "lm_head"),
)
FIELDS = FieldMap(
    "CTRL",
    {
        **COMMON_FIELDS,
        **same("initializer_range"),
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_positions": "max_position_embeddings",
        "dff": "intermediate_size",
        "resid_pdrop": "dropout",
    },
    {
        **GPT2_FIXED,
        "position_embedding_type": "sinusoidal",
        "sinusoidal_layout": "halves",
        "scale_embedding": True,
        "hidden_act": "relu",
        "layer_norm_eps": 1e-6,
        "lm_head_bias": True,
    },
    NO_GROUPS,
    has_head_dim=False,
)


def to_ours(theirs: Config) -> Fields:
    # It is that of the last norm; those in the layers have this one in any case.
    require(theirs, "hf_tformer", layer_norm_epsilon=1e-6)
    return FIELDS.to_ours(theirs)


def to_theirs(ours: Config) -> Fields:
    return {**FIELDS.to_theirs(ours), "embd_pdrop": ours.dropout, "layer_norm_epsilon": 1e-6}


FORMATS = (
    decoder_format("ctrl", "CTRL", to_ours, to_theirs, "CTRL", RULES, {}, head="LMHeadModel"),
)
