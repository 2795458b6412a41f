"""Code that computes what Llama does, or a little besides, under other names."""

from math import log, sqrt
from typing import Any

from ..engine.aliases import Fields
from ..engine.rules import Rule, linears
from ..engine.transforms import InterleavedHeads, Split
from .renaming import Normalised, Renaming
from .shared_names import EMBEDDINGS, FREQUENCIES, HEAD, LAYER, attention, rotation

STABLELM = Renaming(
    "stablelm",
    ("stablelm_epoch",),
    {"layer_norm_eps": "norm_eps"},
    fixed={"use_parallel_residual": False, "qk_layernorm": False},
    required={"rotary_scaling_factor": 1.0},
    dropped=FREQUENCIES,
    computed=lambda theirs: rotation(theirs.get("rope_theta", 10000), theirs["rope_pct"]),
)

INTERNLM = Renaming("llama", ("internlm",), {"attention_bias": "bias"}, dropped=FREQUENCIES)
INTERNLM2 = Renaming(
    "llama",
    ("internlm2",),
    {"attention_bias": "bias"},
    (
        Rule(EMBEDDINGS, "model.tok_embeddings.weight"),
        Rule(attention(), f"{LAYER}.attention.wqkv.weight", InterleavedHeads()),
        Rule(f"{LAYER}.self_attn.o_proj.weight", f"{LAYER}.attention.wo.weight"),
        Rule(f"{LAYER}.input_layernorm.weight", f"{LAYER}.attention_norm.weight"),
        Rule(f"{LAYER}.post_attention_layernorm.weight", f"{LAYER}.ffn_norm.weight"),
        Rule(f"{LAYER}.mlp.gate_proj.weight", f"{LAYER}.feed_forward.w1.weight"),
        Rule(f"{LAYER}.mlp.up_proj.weight", f"{LAYER}.feed_forward.w3.weight"),
        Rule(f"{LAYER}.mlp.down_proj.weight", f"{LAYER}.feed_forward.w2.weight"),
        Rule(HEAD, "output.weight"),
    ),
    required={"bias": False},
)

MINICPM = Renaming(
    "granite",
    ("minicpm",),
    {"embedding_multiplier": "scale_emb"},
    dropped=FREQUENCIES,
    required={"sparse_config": None},
    computed=lambda theirs: {
        "residual_multiplier": theirs["scale_depth"] / sqrt(theirs["num_hidden_layers"]),
        "logits_scaling": theirs["hidden_size"] / theirs["dim_model_base"],
        "attention_multiplier": (theirs["hidden_size"] // theirs["num_attention_heads"]) ** -0.5,
    },
)

PACKED = (Rule(attention(), f"{LAYER}.self_attn.W_pack.weight", Split(3)),)
NORMALISED = (*PACKED, Rule(HEAD, HEAD, Normalised()))
OUR_NAMES = {
    f"{LAYER}.self_attn_norm.weight": f"{LAYER}.input_layernorm.weight",
    f"{LAYER}.mlp_norm.weight": f"{LAYER}.post_attention_layernorm.weight",
}


def baichuan(target: str, rules: tuple[Rule, ...], **more: Any) -> Renaming:
    heads = {"num_key_value_heads": "num_attention_heads"}
    return Renaming(target, ("baichuan",), heads, rules, dropped=FREQUENCIES, **more)


def ours_with_alibi(head: tuple[Rule, ...], **words: tuple[str, ...]) -> Renaming:
    return baichuan(
        "tformer_decoder",
        (*(Rule(ours, theirs) for ours, theirs in OUR_NAMES.items()), *head),
        fixed={
            "position_embedding_type": "none",
            "score_bias": "alibi",
            "norm_type": "rmsnorm",
            "mlp_type": "gated",
            **dict.fromkeys(("attention_bias", "attention_output_bias", "mlp_bias"), False),
        },
        **words,
    )


BAICHUAN = (
    ours_with_alibi(NORMALISED, words=("alibi", "NormHead")),
    ours_with_alibi(PACKED, words=("alibi",), other_words=("NormHead",)),
    baichuan("llama", NORMALISED, words=("NormHead",), other_words=("alibi",)),
    baichuan("llama", PACKED, other_words=("alibi", "NormHead")),
)

FLA_NAMES = (
    Rule(EMBEDDINGS, "model.embeddings.weight"),
    Rule(f"{LAYER}.input_layernorm.weight", f"{LAYER}.attn_norm.weight"),
    Rule(f"{LAYER}.post_attention_layernorm.weight", f"{LAYER}.mlp_norm.weight"),
    *linears(f"{LAYER}.self_attn", f"{LAYER}.attn", {f"{x}_proj": f"{x}_proj" for x in "qkvo"}),
    *(Rule(f"{LAYER}.self_attn.{x}_norm.weight", f"{LAYER}.attn.{x}_norm.weight") for x in "qk"),
)


def fla(target: str, qkv_bias: bool, qk_norm: bool) -> Renaming:
    return Renaming(
        target,
        ("transformer",),
        {
            "num_attention_heads": "num_heads",
            "num_key_value_heads": "num_kv_heads",
            "rms_norm_eps": "norm_eps",
        },
        FLA_NAMES,
        fixed={"hidden_act": "silu"},
        sizes={"intermediate_size": ("model.layers.0.mlp.gate_proj.weight", 0)},
        required={
            "qkv_bias": qkv_bias,
            "qk_norm": qk_norm,
            "window_size": None,
            "attnres_block_size": None,
            "elementwise_affine": True,
        },
        computed=lambda theirs: rotation(theirs.get("rope_theta") or 10000),
    )


def early_yarn(theirs: Fields) -> Fields:
    """Return YaRN's rotation with the bounds of its first code."""
    scaling = theirs["rope_scaling"]
    return {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": float(theirs.get("rope_theta", 10000)),
            "factor": float(scaling["factor"]),
            "original_max_position_embeddings": scaling["original_max_position_embeddings"],
            "beta_fast": 128.0,
            "beta_slow": 2.0,
            "attention_factor": 0.07 * log(scaling["factor"]) + 1.0,
        },
        "max_position_embeddings": int(
            scaling["factor"] * scaling["original_max_position_embeddings"]
        ),
    }


YARN_MISTRAL = Renaming(
    "mistral",
    ("mistral",),
    dropped=FREQUENCIES,
    computed=early_yarn,
    words=("YaRNScaledRotaryEmbedding",),
)
