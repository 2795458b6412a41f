"""GPT-1, whose norms stand behind the sums, as in the first transformer."""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import inverted, require, require_one_of, same
from ...engine.rules import Rule, fused, linears
from ...engine.transforms import Split, Transpose
from ..shared import (
    GPT2_FIXED,
    GPT2_LAYER,
    GPT2_NORMS,
    HEAD,
    IDS,
    LAYER,
    NO_GROUPS,
    QKV,
    causal_masks,
    decoder_format,
)

RULES = (
    Rule("model.embed_tokens.weight", "transformer.tokens_embed.weight"),
    Rule("model.positions.weight", "transformer.positions_embed.weight"),
    *linears(LAYER, GPT2_LAYER, GPT2_NORMS),
    *fused(
        (f"{LAYER}.{name}" for name in QKV),
        f"{GPT2_LAYER}.attn.c_attn",
        Split(3, transposed=True),
        bias=Split(3),
    ),
    *linears(
        LAYER,
        GPT2_LAYER,
        {
            "self_attn.o_proj": "attn.c_proj",
            "mlp.up_proj": "mlp.c_fc",
            "mlp.down_proj": "mlp.c_proj",
        },
        Transpose(),
    ),
    HEAD,
)
FIELDS = FieldMap(
    "GPT-1",
    {
        **IDS,
        **same("vocab_size", "tie_word_embeddings", "initializer_range"),
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_positions": "max_position_embeddings",
        "layer_norm_epsilon": "layer_norm_eps",
        "resid_pdrop": "dropout",
        "attn_pdrop": "attention_dropout",
    },
    {**GPT2_FIXED, "norm_position": "post", "final_norm": False},
    NO_GROUPS,
    has_head_dim=False,
)
# Their names of activations, which are not those of other models → ours.
ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu"}


def to_ours(theirs: Config) -> Fields:
    require_one_of(theirs, "hf_tformer", afn=(*ACTIVATIONS, "swish"))
    return {
        **FIELDS.to_ours(theirs),
        "intermediate_size": 4 * theirs.n_embd,
        "hidden_act": ACTIVATIONS.get(theirs.afn, "silu"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "GPT-1", intermediate_size=4 * ours.hidden_size)
    require_one_of(ours, "GPT-1", hidden_act=tuple(ACTIVATIONS.values()))
    return {
        **FIELDS.to_theirs(ours),
        "embd_pdrop": ours.dropout,
        "afn": inverted(ACTIVATIONS)[ours.hidden_act],
    }


FORMATS = (
    decoder_format(
        "openai-gpt",
        "OpenAIGPT",
        to_ours,
        to_theirs,
        "GPT-1",
        RULES,
        causal_masks(f"{GPT2_LAYER}.attn"),
        head="LMHeadModel",
    ),
)
