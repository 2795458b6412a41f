"""Equality with transformers' own models: every tensor, every output, every gradient.

A table says for each tensor of ours where it lies in theirs, and what has to be done to it; a star
stands for one part of a dotted name. Weights travel through a table to load our model; gradients
travel through the same table to be compared.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

import torch

from hf_tformer.testing.families import randomise

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def unchanged(tensor):
    return tensor


def transposed(tensor):
    """GPT-2's Conv1D holds [in, out] where Linear holds [out, in]; a bias is left as it is."""
    return tensor.t()


def fused_query(tensor):
    return tensor.t().chunk(3)[0]


def fused_key(tensor):
    return tensor.t().chunk(3)[1]


def fused_value(tensor):
    return tensor.t().chunk(3)[2]


def without_pairs(tensor):
    """In heads of 8 numbers neighbours turn together; in ours the halves do."""
    return by_heads(tensor, [0, 2, 4, 6, 1, 3, 5, 7])


def without_pairs_in_half(tensor):
    """The same where the last four of eight do not turn."""
    return by_heads(tensor, [0, 2, 1, 3, 4, 5, 6, 7])


def from_four_parts(place, pairs):
    """CodeGen: the queries, values or keys of some heads in each of four parts."""

    def rows(tensor):
        part = tensor.unflatten(0, (4, 3, -1))[:, place].flatten(0, 1)
        return without_pairs_in_half(part) if pairs else part

    return rows


def other_way(tensor):
    """nanochat turns by the negative angle: the halves of a head change places."""
    return by_heads(tensor, [4, 5, 6, 7, 0, 1, 2, 3])


def by_heads(tensor, order):
    return tensor.unflatten(0, (-1, 8))[:, order].flatten(0, 1)


def first_half(tensor):
    """Gates stand before what they gate; queries before twice fewer keys and values."""
    return tensor[: len(tensor) // 2]


def third_quarter(tensor):
    return tensor.chunk(4)[2]


def last_quarter(tensor):
    return tensor.chunk(4)[3]


def last_half(tensor):
    return tensor[len(tensor) // 2 :]


def query_key_or_value(part):
    """Of a fused tensor with heads of five: the query, the key and the value of each head in turn
    (BLOOM), or, in 40 rows, six queries, then one key and one value for all (GPT-BigCode)."""

    def rows(tensor):
        if len(tensor) == 40:
            return tensor.split((30, 5, 5))[part]
        return tensor.unflatten(0, (-1, 3, 5))[:, part].flatten(0, 1)

    return rows


FUSED_QUERY, FUSED_KEY, FUSED_VALUE = map(query_key_or_value, range(3))


def first_third(tensor):
    return tensor.chunk(3)[0]


def second_third(tensor):
    return tensor.chunk(3)[1]


def last_third(tensor):
    return tensor.chunk(3)[2]


def from_groups(part):
    """Of the fused tensor of NeoX and Falcon, with six heads of eight: each head of keys stands
    behind the queries that share it, and before its values."""

    def rows(tensor):
        heads = tensor.split(8)
        size = 6 // ((len(heads) - 6) // 2) + 2
        places = {"query": range(size - 2), "key": [size - 2], "value": [size - 1]}[part]
        return torch.cat([head for i, head in enumerate(heads) if i % size in places])

    return rows


GROUPED = {x: from_groups(name) for x, name in (("q", "query"), ("k", "key"), ("v", "value"))}


def flattened(tensor):
    """[1, vocab] → [vocab]"""
    return tensor.squeeze(0)


def without_offset(tensor):
    """BART and OPT never read the first two rows: they look up position + 2."""
    return tensor[2:]


@dataclass
class Table:
    """`rules`: ours → theirs, or ours → (theirs, transform); a stroke stands between two names of
    theirs, of which each model has one. `ignored`: theirs → why not ours.
    `constant`: ours, which keep the values that they are made with, for theirs have none.
    """

    rules: dict[str, str | tuple[str, Callable]]
    ignored: dict[str, str] = field(default_factory=dict)
    constant: tuple[str, ...] = ()


def same(*names):
    return {name: name for name in names}


AROUND_LAYERS = {
    **same("model.embed_tokens.weight", "model.norm.*", "lm_head.weight"),
    "model.layers.*.self_attn_norm.*": "model.layers.*.input_layernorm.*",
    "model.layers.*.mlp_norm.*": "model.layers.*.post_attention_layernorm.*",
}

LLAMA = Table({**AROUND_LAYERS, **same("model.layers.*.self_attn.*.*", "model.layers.*.mlp.*.*")})


def halves(name):
    """Gate and up projection, one above the other in a tensor of theirs."""
    return {
        "model.layers.*.mlp.gate_proj.*": (name, first_half),
        "model.layers.*.mlp.up_proj.*": (name, last_half),
    }


FUSED_GATE = {
    **halves("model.layers.*.mlp.gate_up_proj.*"),
    "model.layers.*.mlp.down_proj.*": "model.layers.*.mlp.down_proj.*",
}

NEIGHBOURS = Table(
    {
        **AROUND_LAYERS,
        **same("model.layers.*.self_attn.v_proj.*", "model.layers.*.self_attn.o_proj.*"),
        **same("model.layers.*.mlp.*.*"),
        "model.layers.*.self_attn.q_proj.*": ("model.layers.*.self_attn.q_proj.*", without_pairs),
        "model.layers.*.self_attn.k_proj.*": ("model.layers.*.self_attn.k_proj.*", without_pairs),
    }
)

GLM = Table(
    {
        **AROUND_LAYERS,
        **FUSED_GATE,
        **same("model.layers.*.self_attn.v_proj.*", "model.layers.*.self_attn.o_proj.*"),
        "model.layers.*.self_attn.q_proj.*": (
            "model.layers.*.self_attn.q_proj.*",
            without_pairs_in_half,
        ),
        "model.layers.*.self_attn.k_proj.*": (
            "model.layers.*.self_attn.k_proj.*",
            without_pairs_in_half,
        ),
    }
)

GLM4 = Table(
    {
        **GLM.rules,
        "model.layers.*.self_attn_output.*": "model.layers.*.post_self_attn_layernorm.*",
        "model.layers.*.mlp_output.*": "model.layers.*.post_mlp_layernorm.*",
    }
)

BEHIND_BRANCHES = {
    **same("model.embed_tokens.weight", "model.norm.*", "lm_head.weight"),
    **same("model.layers.*.self_attn.*.*", "model.layers.*.mlp.*.*"),
    "model.layers.*.self_attn_output.*": "model.layers.*.post_attention_layernorm.*",
    "model.layers.*.mlp_output.*": "model.layers.*.post_feedforward_layernorm.*",
}

OLMO2 = Table(
    {
        **BEHIND_BRANCHES,
        "model.layers.*.self_attn.q_norm.norm.*": "model.layers.*.self_attn.q_norm.*",
        "model.layers.*.self_attn.k_norm.norm.*": "model.layers.*.self_attn.k_norm.*",
    }
)

AROUND_BRANCHES = Table(
    {
        **BEHIND_BRANCHES,
        "model.layers.*.self_attn_norm.*": "model.layers.*.input_layernorm.*",
        "model.layers.*.mlp_norm.*": "model.layers.*.pre_feedforward_layernorm.*",
    }
)

OLMO = Table(
    {
        **same("model.embed_tokens.weight", "lm_head.weight"),
        **same("model.layers.*.self_attn.*.*", "model.layers.*.mlp.*.*"),
    },
    constant=("model.norm.*", "model.layers.*.self_attn_norm.*", "model.layers.*.mlp_norm.*"),
)

NANOCHAT = Table(
    {
        **same("model.embed_tokens.weight", "lm_head.weight"),
        **same("model.layers.*.self_attn.v_proj.*", "model.layers.*.self_attn.o_proj.*"),
        "model.layers.*.self_attn.q_proj.*": ("model.layers.*.self_attn.q_proj.*", other_way),
        "model.layers.*.self_attn.k_proj.*": ("model.layers.*.self_attn.k_proj.*", other_way),
        "model.layers.*.mlp.up_proj.*": "model.layers.*.mlp.fc1.*",
        "model.layers.*.mlp.down_proj.*": "model.layers.*.mlp.fc2.*",
    },
    constant=(*OLMO.constant, "model.embed_norm.*", "model.layers.*.self_attn.*_norm.*"),
)

PHI3 = Table(
    {
        **AROUND_LAYERS,
        **FUSED_GATE,
        "model.layers.*.self_attn.q_proj.*": ("model.layers.*.self_attn.qkv_proj.*", first_half),
        "model.layers.*.self_attn.k_proj.*": ("model.layers.*.self_attn.qkv_proj.*", third_quarter),
        "model.layers.*.self_attn.v_proj.*": ("model.layers.*.self_attn.qkv_proj.*", last_quarter),
        "model.layers.*.self_attn.o_proj.*": "model.layers.*.self_attn.o_proj.*",
    }
)

GPT2 = Table(
    {
        **same("lm_head.weight"),
        "model.embed_tokens.weight": "transformer.wte.weight",
        "model.positions.weight": "transformer.wpe.weight",
        "model.layers.*.self_attn_norm.*": "transformer.h.*.ln_1.*",
        "model.layers.*.self_attn.q_proj.*": ("transformer.h.*.attn.c_attn.*", fused_query),
        "model.layers.*.self_attn.k_proj.*": ("transformer.h.*.attn.c_attn.*", fused_key),
        "model.layers.*.self_attn.v_proj.*": ("transformer.h.*.attn.c_attn.*", fused_value),
        "model.layers.*.self_attn.o_proj.*": ("transformer.h.*.attn.c_proj.*", transposed),
        "model.layers.*.mlp_norm.*": "transformer.h.*.ln_2.*",
        "model.layers.*.mlp.up_proj.*": ("transformer.h.*.mlp.c_fc.*", transposed),
        "model.layers.*.mlp.down_proj.*": ("transformer.h.*.mlp.c_proj.*", transposed),
        "model.norm.*": "transformer.ln_f.*",
    }
)

SEQ2SEQ_RULES = {
    **same("model.shared.weight", "model.*.embed_tokens.weight", "lm_head.weight"),
    **same(*(f"model.*.layers.*.self_attn.{name}_proj.*" for name in "qkv")),
    "model.*.layers.*.self_attn.o_proj.*": "model.*.layers.*.self_attn.out_proj.*",
    "model.*.layers.*.self_attn_norm.*": "model.*.layers.*.self_attn_layer_norm.*",
    "model.*.layers.*.cross_attn.q_proj.*": "model.*.layers.*.encoder_attn.q_proj.*",
    "model.*.layers.*.cross_attn.k_proj.*": "model.*.layers.*.encoder_attn.k_proj.*",
    "model.*.layers.*.cross_attn.v_proj.*": "model.*.layers.*.encoder_attn.v_proj.*",
    "model.*.layers.*.cross_attn.o_proj.*": "model.*.layers.*.encoder_attn.out_proj.*",
    "model.*.layers.*.cross_attn_norm.*": "model.*.layers.*.encoder_attn_layer_norm.*",
    "model.*.layers.*.mlp.up_proj.*": "model.*.layers.*.fc1.*",
    "model.*.layers.*.mlp.down_proj.*": "model.*.layers.*.fc2.*",
    "model.*.layers.*.mlp_norm.*": "model.*.layers.*.final_layer_norm.*",
    "lm_head.bias": ("final_logits_bias", flattened),
}
NEVER_READ = {"model.shared.weight": "without tying, transformers makes this table and leaves it"}

MARIAN = Table(
    SEQ2SEQ_RULES,
    ignored={"model.*.embed_positions.weight": "frozen sinusoids; we compute them", **NEVER_READ},
)

BART = Table(
    {
        **SEQ2SEQ_RULES,
        "model.*.positions.weight": ("model.*.embed_positions.weight", without_offset),
        "model.*.embed_norm.*": "model.*.layernorm_embedding.*",
        "model.*.norm.*": "model.*.layer_norm.*",  # mBART alone
    },
    ignored=NEVER_READ,
)

PEGASUS = Table({**SEQ2SEQ_RULES, "model.*.norm.*": "model.*.layer_norm.*"}, ignored=MARIAN.ignored)

BLENDERBOT = Table(
    {**PEGASUS.rules, "model.*.positions.weight": "model.*.embed_positions.weight"},
    ignored=NEVER_READ,
)


def t5_table(mlp, distances="table.weight", layer="0"):
    """`mlp` is ours → theirs, `distances` our table of the layer of theirs that holds it."""
    rules = {
        **same("lm_head.weight"),
        "model.shared.weight": "shared.weight",
        "model.*.embed_tokens.weight": "*.embed_tokens.weight",
    }
    for stack, last in (("encoder", 1), ("decoder", 2)):
        ours, theirs = f"model.{stack}.layers.*", f"{stack}.block.*.layer"
        for x in "qkvo":
            rules[f"{ours}.self_attn.{x}_proj.weight"] = f"{theirs}.0.SelfAttention.{x}.weight"
        rules[f"{ours}.self_attn_norm.weight"] = f"{theirs}.0.layer_norm.weight"
        for our_name, name in mlp.items():
            rules[f"{ours}.mlp.{our_name}.weight"] = f"{theirs}.{last}.DenseReluDense.{name}.weight"
        rules[f"{ours}.mlp_norm.weight"] = f"{theirs}.{last}.layer_norm.weight"
        rules[f"model.{stack}.score_bias.{distances}"] = (
            f"{stack}.block.{layer}.layer.0.SelfAttention.relative_attention_bias.weight"
        )
        rules[f"model.{stack}.norm.weight"] = f"{stack}.final_layer_norm.weight"
    for x in "qkvo":
        rules[f"model.decoder.layers.*.cross_attn.{x}_proj.weight"] = (
            f"decoder.block.*.layer.1.EncDecAttention.{x}.weight"
        )
    rules["model.decoder.layers.*.cross_attn_norm.weight"] = (
        "decoder.block.*.layer.1.layer_norm.weight"
    )
    return Table(rules)


T5_MLP = {"up_proj": "wi", "down_proj": "wo"}
T5_GATED_MLP = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}
UMT5_DISTANCES = {"distances": "tables.*.weight", "layer": "*"}


def opt_rules(stack):
    return {
        "model.embed_tokens.weight": f"{stack}.embed_tokens.weight",
        "model.positions.weight": (f"{stack}.embed_positions.weight", without_offset),
        "model.layers.*.self_attn_norm.*": f"{stack}.layers.*.self_attn_layer_norm.*",
        "model.layers.*.self_attn.q_proj.*": f"{stack}.layers.*.self_attn.q_proj.*",
        "model.layers.*.self_attn.k_proj.*": f"{stack}.layers.*.self_attn.k_proj.*",
        "model.layers.*.self_attn.v_proj.*": f"{stack}.layers.*.self_attn.v_proj.*",
        "model.layers.*.self_attn.o_proj.*": f"{stack}.layers.*.self_attn.out_proj.*",
        "model.layers.*.mlp_norm.*": f"{stack}.layers.*.final_layer_norm.*",
        "model.layers.*.mlp.up_proj.*": f"{stack}.layers.*.fc1.*",
        "model.layers.*.mlp.down_proj.*": f"{stack}.layers.*.fc2.*",
    }


GPT_NEO = Table(
    {
        **same("lm_head.weight"),
        "model.embed_tokens.weight": "transformer.wte.weight",
        "model.positions.weight": "transformer.wpe.weight",
        "model.layers.*.self_attn_norm.*": "transformer.h.*.ln_1.*",
        "model.layers.*.self_attn.q_proj.weight": "transformer.h.*.attn.attention.q_proj.weight",
        "model.layers.*.self_attn.k_proj.weight": "transformer.h.*.attn.attention.k_proj.weight",
        "model.layers.*.self_attn.v_proj.weight": "transformer.h.*.attn.attention.v_proj.weight",
        "model.layers.*.self_attn.o_proj.*": "transformer.h.*.attn.attention.out_proj.*",
        "model.layers.*.mlp_norm.*": "transformer.h.*.ln_2.*",
        "model.layers.*.mlp.up_proj.*": "transformer.h.*.mlp.c_fc.*",
        "model.layers.*.mlp.down_proj.*": "transformer.h.*.mlp.c_proj.*",
        "model.norm.*": "transformer.ln_f.*",
    }
)

GPT_BIGCODE = Table(
    {
        **same("lm_head.weight"),
        "model.embed_tokens.weight": "transformer.wte.weight",
        "model.positions.weight": "transformer.wpe.weight",
        "model.layers.*.self_attn_norm.*": "transformer.h.*.ln_1.*",
        "model.layers.*.self_attn.q_proj.*": ("transformer.h.*.attn.c_attn.*", FUSED_QUERY),
        "model.layers.*.self_attn.k_proj.*": ("transformer.h.*.attn.c_attn.*", FUSED_KEY),
        "model.layers.*.self_attn.v_proj.*": ("transformer.h.*.attn.c_attn.*", FUSED_VALUE),
        "model.layers.*.self_attn.o_proj.*": "transformer.h.*.attn.c_proj.*",
        "model.layers.*.mlp_norm.*": "transformer.h.*.ln_2.*",
        "model.layers.*.mlp.up_proj.*": "transformer.h.*.mlp.c_fc.*",
        "model.layers.*.mlp.down_proj.*": "transformer.h.*.mlp.c_proj.*",
        "model.norm.*": "transformer.ln_f.*",
    }
)

OPT = Table(
    {
        **opt_rules("model.decoder"),
        **same("lm_head.weight"),
        "model.norm.*": "model.decoder.final_layer_norm.*",
    }
)

BLOOM = Table(
    {
        **same("lm_head.weight"),
        "model.embed_tokens.weight": "transformer.word_embeddings.weight",
        "model.embed_norm.*": "transformer.word_embeddings_layernorm.*",
        "model.layers.*.self_attn_norm.*": "transformer.h.*.input_layernorm.*",
        "model.layers.*.self_attn.q_proj.*": (
            "transformer.h.*.self_attention.query_key_value.*",
            FUSED_QUERY,
        ),
        "model.layers.*.self_attn.k_proj.*": (
            "transformer.h.*.self_attention.query_key_value.*",
            FUSED_KEY,
        ),
        "model.layers.*.self_attn.v_proj.*": (
            "transformer.h.*.self_attention.query_key_value.*",
            FUSED_VALUE,
        ),
        "model.layers.*.self_attn.o_proj.*": "transformer.h.*.self_attention.dense.*",
        "model.layers.*.mlp_norm.*": "transformer.h.*.post_attention_layernorm.*",
        "model.layers.*.mlp.up_proj.*": "transformer.h.*.mlp.dense_h_to_4h.*",
        "model.layers.*.mlp.down_proj.*": "transformer.h.*.mlp.dense_4h_to_h.*",
        "model.norm.*": "transformer.ln_f.*",
    }
)

MPT = Table(
    {
        **same("lm_head.weight"),
        "model.embed_tokens.weight": "transformer.wte.weight",
        "model.layers.*.self_attn_norm.weight": "transformer.blocks.*.norm_1.weight",
        "model.layers.*.self_attn.q_proj.weight": (
            "transformer.blocks.*.attn.Wqkv.weight",
            first_third,
        ),
        "model.layers.*.self_attn.k_proj.weight": (
            "transformer.blocks.*.attn.Wqkv.weight",
            second_third,
        ),
        "model.layers.*.self_attn.v_proj.weight": (
            "transformer.blocks.*.attn.Wqkv.weight",
            last_third,
        ),
        "model.layers.*.self_attn.o_proj.weight": "transformer.blocks.*.attn.out_proj.weight",
        "model.layers.*.mlp_norm.weight": "transformer.blocks.*.norm_2.weight",
        "model.layers.*.mlp.up_proj.weight": "transformer.blocks.*.ffn.up_proj.weight",
        "model.layers.*.mlp.down_proj.weight": "transformer.blocks.*.ffn.down_proj.weight",
        "model.norm.weight": "transformer.norm_f.weight",
    }
)

XGLM = Table(
    {
        **{x: theirs for x, theirs in opt_rules("model").items() if x != "model.positions.weight"},
        **same("lm_head.weight"),
        "model.norm.*": "model.layer_norm.*",
    }
)

STARCODER2 = Table(
    {
        **same("model.embed_tokens.weight", "model.norm.*", "lm_head.weight"),
        **same("model.layers.*.self_attn.*.*"),
        "model.layers.*.self_attn_norm.*": "model.layers.*.input_layernorm.*",
        "model.layers.*.mlp_norm.*": "model.layers.*.post_attention_layernorm.*",
        "model.layers.*.mlp.up_proj.*": "model.layers.*.mlp.c_fc.*",
        "model.layers.*.mlp.down_proj.*": "model.layers.*.mlp.c_proj.*",
    }
)

BIOGPT = Table(
    {
        **opt_rules("biogpt"),
        "lm_head.weight": "output_projection.weight",
        "model.norm.*": "biogpt.layer_norm.*",
    }
)

NEOX = Table(
    {
        **same("lm_head.weight"),
        "model.embed_tokens.weight": "gpt_neox.embed_in.weight",
        "model.layers.*.self_attn_norm.*": "gpt_neox.layers.*.input_layernorm.*",
        **{
            f"model.layers.*.self_attn.{x}_proj.*": (
                "gpt_neox.layers.*.attention.query_key_value.*",
                rows,
            )
            for x, rows in GROUPED.items()
        },
        "model.layers.*.self_attn.o_proj.*": "gpt_neox.layers.*.attention.dense.*",
        "model.layers.*.mlp_norm.*": "gpt_neox.layers.*.post_attention_layernorm.*",
        "model.layers.*.mlp.up_proj.*": "gpt_neox.layers.*.mlp.dense_h_to_4h.*",
        "model.layers.*.mlp.down_proj.*": "gpt_neox.layers.*.mlp.dense_4h_to_h.*",
        "model.norm.*": "gpt_neox.final_layer_norm.*",
    }
)

GPTJ = Table(
    {
        **same("lm_head.*"),
        "model.embed_tokens.weight": "transformer.wte.weight",
        "model.layers.*.self_attn_norm.*": "transformer.h.*.ln_1.*",
        "model.layers.*.self_attn.q_proj.*": (
            "transformer.h.*.attn.q_proj.*",
            without_pairs_in_half,
        ),
        "model.layers.*.self_attn.k_proj.*": (
            "transformer.h.*.attn.k_proj.*",
            without_pairs_in_half,
        ),
        "model.layers.*.self_attn.v_proj.*": "transformer.h.*.attn.v_proj.*",
        "model.layers.*.self_attn.o_proj.*": "transformer.h.*.attn.out_proj.*",
        "model.layers.*.mlp.up_proj.*": "transformer.h.*.mlp.fc_in.*",
        "model.layers.*.mlp.down_proj.*": "transformer.h.*.mlp.fc_out.*",
        "model.norm.*": "transformer.ln_f.*",
    }
)

CODEGEN = Table(
    {
        **{name: rule for name, rule in GPTJ.rules.items() if "_proj" not in name},
        **{
            f"model.layers.*.self_attn.{x}_proj.weight": (
                "transformer.h.*.attn.qkv_proj.weight",
                from_four_parts(place, x != "v"),
            )
            for place, x in enumerate("qvk")
        },
        "model.layers.*.self_attn.o_proj.*": "transformer.h.*.attn.out_proj.*",
        "model.layers.*.mlp.up_proj.*": "transformer.h.*.mlp.fc_in.*",
        "model.layers.*.mlp.down_proj.*": "transformer.h.*.mlp.fc_out.*",
    }
)

GPT1 = Table(
    {
        **{name: rule for name, rule in GPT2.rules.items() if not name.startswith("model.norm")},
        "model.embed_tokens.weight": "transformer.tokens_embed.weight",
        "model.positions.weight": "transformer.positions_embed.weight",
    }
)

CTRL_LAYER = "transformer.h.*"
CTRL = Table(
    {
        **same("lm_head.*"),
        "model.embed_tokens.weight": "transformer.w.weight",
        "model.layers.*.self_attn_norm.*": f"{CTRL_LAYER}.layernorm1.*",
        **{
            f"model.layers.*.self_attn.{x}_proj.*": f"{CTRL_LAYER}.multi_head_attention.W{x}.*"
            for x in "qkv"
        },
        "model.layers.*.self_attn.o_proj.*": f"{CTRL_LAYER}.multi_head_attention.dense.*",
        "model.layers.*.mlp_norm.*": f"{CTRL_LAYER}.layernorm2.*",
        "model.layers.*.mlp.up_proj.*": f"{CTRL_LAYER}.ffn.0.*",
        "model.layers.*.mlp.down_proj.*": f"{CTRL_LAYER}.ffn.2.*",
        "model.norm.*": "transformer.layernorm.*",
    }
)

PERSIMMON = Table(
    {
        **same("lm_head.weight", "model.embed_tokens.weight"),
        "model.layers.*.self_attn_norm.*": "model.layers.*.input_layernorm.*",
        "model.layers.*.mlp_norm.*": "model.layers.*.post_attention_layernorm.*",
        **{
            f"model.layers.*.self_attn.{x}_proj.*": (
                "model.layers.*.self_attn.query_key_value.*",
                rows,
            )
            for x, rows in GROUPED.items()
        },
        **{
            f"model.layers.*.self_attn.{x}_norm.*": f"model.layers.*.self_attn.{x}_layernorm.*"
            for x in "qk"
        },
        "model.layers.*.self_attn.o_proj.*": "model.layers.*.self_attn.dense.*",
        "model.layers.*.mlp.up_proj.*": "model.layers.*.mlp.dense_h_to_4h.*",
        "model.layers.*.mlp.down_proj.*": "model.layers.*.mlp.dense_4h_to_h.*",
        "model.norm.*": "model.final_layernorm.*",
    }
)

PHI = Table(
    {
        **same("model.embed_tokens.weight", "lm_head.*"),
        **same(*(f"model.layers.*.self_attn.{x}_proj.*" for x in "qkv")),
        "model.layers.*.self_attn_norm.*": "model.layers.*.input_layernorm.*",
        "model.layers.*.self_attn.o_proj.*": "model.layers.*.self_attn.dense.*",
        "model.layers.*.mlp.up_proj.*": "model.layers.*.mlp.fc1.*",
        "model.layers.*.mlp.down_proj.*": "model.layers.*.mlp.fc2.*",
        "model.norm.*": "model.final_layernorm.*",
    }
)

FALCON = Table(
    {
        **same("lm_head.weight"),
        "model.embed_tokens.weight": "transformer.word_embeddings.weight",
        "model.layers.*.self_attn_norm.*": (
            "transformer.h.*.ln_attn.*|transformer.h.*.input_layernorm.*"
        ),
        **{
            f"model.layers.*.self_attn.{x}_proj.*": (
                "transformer.h.*.self_attention.query_key_value.*",
                rows,
            )
            for x, rows in GROUPED.items()
        },
        "model.layers.*.self_attn.o_proj.*": "transformer.h.*.self_attention.dense.*",
        "model.layers.*.mlp_norm.*": (
            "transformer.h.*.ln_mlp.*|transformer.h.*.post_attention_layernorm.*"
        ),
        "model.layers.*.mlp.up_proj.*": "transformer.h.*.mlp.dense_h_to_4h.*",
        "model.layers.*.mlp.down_proj.*": "transformer.h.*.mlp.dense_4h_to_h.*",
        "model.norm.*": "transformer.ln_f.*",
    }
)

TABLES = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "stablelm", "seed_oss", "arcee"), LLAMA),
    **dict.fromkeys(("granite", "cwm", "ministral", "jais2"), LLAMA),
    "granitemoehybrid": Table(
        {
            **AROUND_LAYERS,
            **same("model.layers.*.self_attn.*.*"),
            **halves("model.layers.*.shared_mlp.input_linear.*"),
            "model.layers.*.mlp.down_proj.*": "model.layers.*.shared_mlp.output_linear.*",
        }
    ),
    "hyperclovax": Table(
        {
            **LLAMA.rules,
            "model.layers.*.self_attn_output.*": "model.layers.*.post_norm1.*",
            "model.layers.*.mlp_output.*": "model.layers.*.post_norm2.*",
        }
    ),
    "vaultgemma": AROUND_BRANCHES,
    "gpt_neox": NEOX,
    "gptj": GPTJ,
    "codegen": CODEGEN,
    "ctrl": CTRL,
    "openai-gpt": GPT1,
    "persimmon": PERSIMMON,
    "phi": PHI,
    "falcon": FALCON,
    **dict.fromkeys(("gemma", "smollm3"), LLAMA),
    **dict.fromkeys(("gemma2", "gemma3_text"), AROUND_BRANCHES),
    **dict.fromkeys(("olmo2", "olmo3"), OLMO2),
    "exaone4": Table(BEHIND_BRANCHES),
    "phi3": PHI3,
    "olmo": OLMO,
    "nanochat": NANOCHAT,
    "glm": GLM,
    **dict.fromkeys(("helium", "ernie4_5", "cohere", "cohere2"), NEIGHBOURS),
    "glm4": GLM4,
    **dict.fromkeys(("helium", "ernie4_5"), NEIGHBOURS),
    "gpt2": GPT2,
    "gpt_neo": GPT_NEO,
    "gpt_bigcode": GPT_BIGCODE,
    "opt": OPT,
    "bloom": BLOOM,
    "mpt": MPT,
    "xglm": XGLM,
    "biogpt": BIOGPT,
    "starcoder2": STARCODER2,
    "marian": MARIAN,
    "pegasus": PEGASUS,
    "blenderbot": BLENDERBOT,
    "m2m_100": PEGASUS,
    **dict.fromkeys(("bart", "mbart", "plbart", "mvp"), BART),
    **dict.fromkeys(("t5", "mt5"), t5_table(T5_MLP)),
    **dict.fromkeys(("gated t5", "gated mt5"), t5_table(T5_GATED_MLP)),
    "umt5": t5_table(T5_MLP, **UMT5_DISTANCES),
    "gated umt5": t5_table(T5_GATED_MLP, **UMT5_DISTANCES),
}


def table_of(theirs):
    """The classes of an encoder have names of their own, two kinds of MLP of T5 have not."""
    is_gated = getattr(theirs.config, "is_gated_act", False)
    model_type = "gated " * is_gated + theirs.config.model_type
    return TABLES.get(type(theirs).__name__) or TABLES[model_type]


def match(pattern, name):
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"([^.]+)"), name)


def find_source(table, name, their_names):
    """Where our tensor comes from: their name, and the transform."""
    patterns = [pattern for pattern in table.rules if match(pattern, name)]
    assert len(patterns) == 1, f"{len(patterns)} rules of the table fit our {name}"
    rule = table.rules[patterns[0]]
    theirs, transform = rule if isinstance(rule, tuple) else (rule, unchanged)
    parts = match(patterns[0], name).groups()
    names = {one.replace("*", "{}").format(*parts) for one in theirs.split("|")}
    assert len(names & their_names) == 1, f"their {names} of our {name}: not one is there"
    return (names & their_names).pop(), transform


def pair_tensors(ours, theirs):
    """Our names → (our tensor, their tensor, transform); no tensor of either side is forgotten."""
    table = table_of(theirs)
    our_tensors, their_tensors = saved_tensors(ours), saved_tensors(theirs)
    for name in [n for n in our_tensors if any(match(pattern, n) for pattern in table.constant)]:
        del our_tensors[name]
    sources = {name: find_source(table, name, their_tensors.keys()) for name in our_tensors}
    assert len(set(sources.values())) == len(sources), "the table reads a tensor of theirs twice"
    read = {id(their_tensors[source]) for source, _ in sources.values()}
    for name in (name for name, tensor in their_tensors.items() if id(tensor) not in read):
        assert any(match(pattern, name) for pattern in table.ignored), f"forgotten: their {name}"
        assert their_tensors[name].grad is None, f"ignored, though it matters: their {name}"
    return {
        name: (our_tensors[name], their_tensors[source], transform)
        for name, (source, transform) in sources.items()
    }


def saved_tensors(model):
    """Parameters and persistent buffers themselves, under every name that a tied one has."""
    return model.state_dict(keep_vars=True)


def load(ours, theirs):
    pairs = pair_tensors(ours, theirs)
    state = {name: transform(tensor.detach()) for name, (_, tensor, transform) in pairs.items()}
    ours.load_state_dict({**ours.state_dict(), **state})


@dataclass
class Case:
    """Two models that are to be equal: their classes, ours, and options, shared or not."""

    their_classes: tuple[type, type]
    our_classes: tuple[type, type]
    both: dict
    theirs: dict = field(default_factory=dict)
    ours: dict = field(default_factory=dict)

    def build(self, backend):
        """Our model and theirs, with the same random weights."""
        theirs = randomise(self.build_one(self.their_classes, self.theirs))
        ours = self.build_one(self.our_classes, self.ours)
        load(ours, theirs)
        for model in (ours, theirs):
            # MPNet and GPT-Neo know no other.
            model.eval().set_attn_implementation(backend if model._supports_sdpa else "eager")
        return ours, theirs

    def build_one(self, classes, options):
        config_class, model_class = classes
        # A copy for each: configurations complete the dictionaries that they are given.
        return model_class(config_class(**deepcopy({**self.both, **options})))


def assert_parity(ours, theirs, inputs, for_theirs=None):
    """All outputs at real tokens, the loss, and the gradient of everything that learns.

    `for_theirs` holds what their model has to be told and ours finds out.
    """
    show = all(model.config._attn_implementation == "eager" for model in (ours, theirs))
    inputs = {**inputs, "output_attentions": show}
    our_outputs = run(ours, inputs)
    their_outputs = run(theirs, {**inputs, **(for_theirs or {})})
    assert our_outputs.keys() == their_outputs.keys()
    for name, expected in their_outputs.items():
        assert_same_output(name, our_outputs[name], expected, inputs)
    for name, (tensor, their_tensor, transform) in pair_tensors(ours, theirs).items():
        assert_close(f"gradient of {name}", tensor.grad, transform(their_tensor.grad))


def run(model, inputs):
    """The outputs by name, after a backward pass."""
    for tensor in saved_tensors(model).values():
        tensor.grad = None
    outputs = model(**inputs, use_cache=False, output_hidden_states=True)
    loss = outputs.get("loss")
    (weighted(outputs, inputs) if loss is None else loss).backward()
    # GPT-2 lists cross-attentions though it has none; a pooled output is an answer of its own.
    return {k: v for k, v in outputs.items() if len(as_tuple(v)) and k != "pooler_output"}


def weighted(outputs, inputs):
    """In place of a loss: each number that is said about a real token has a part of its own."""
    answers = ("last_hidden_state", "start_logits", "end_logits")
    real = [outputs[x][inputs["attention_mask"].bool()].flatten() for x in answers if x in outputs]
    said = torch.cat(real)
    return said @ torch.linspace(-1, 1, len(said)) / len(said)


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def assert_same_output(name, ours, theirs, inputs):
    ours, theirs = as_tuple(ours), as_tuple(theirs)
    assert len(ours) == len(theirs), name
    for i in range(len(theirs)):
        our_value, their_value = (real_part(name, value[i], inputs) for value in (ours, theirs))
        assert_close(f"{name}[{i}]", our_value, their_value)


def real_part(name, value, inputs):
    """What an output says about tokens, without what it says about padding."""
    if value.ndim == 0:  # the loss
        return value
    is_target = "decoder_input_ids" in inputs and not name.startswith("encoder_")
    prefix = "decoder_" if is_target else ""
    mask = inputs.get(f"{prefix}attention_mask", torch.ones_like(inputs[f"{prefix}input_ids"]))
    if name == "router_logits":
        value = value.unflatten(0, mask.shape)  # [tokens, experts] → [batch, seq, experts]
    elif value.ndim == 2 and value.shape != mask.shape:  # one answer for each text
        return value
    if value.ndim == 4:
        value = value.transpose(1, 2)  # [batch, heads, query, key] → [batch, query, heads, key]
    return value[mask.bool()]


def assert_close(name, ours, theirs):
    torch.testing.assert_close(ours, theirs, **CLOSE, msg=lambda text: f"{name}: {text}")


def random_ids(batch, length, seed=0, vocab_size=101):
    """Token ids from 3 up: the smaller ones are kept for padding, start and end."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocab_size, (batch, length), generator=generator)
