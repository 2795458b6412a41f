"""OLMo, Seed-OSS and Arcee: Llama with other norms, other biases or another MLP."""

from ...engine.aliases import Config, Fields
from ...engine.format import carry, choose, inverted, plain_attention_scale, require
from ...engine.rotations import full_rotation
from ...engine.rules import Rule
from ...engine.transforms import Ones, Zeros
from .llama import LIKE_LLAMA, RULES, SAME_FIELDS, head_size, llama_format

NORMS = ("model.layers.{i}.self_attn_norm", "model.layers.{i}.mlp_norm", "model.norm")
GAINS = {f"{norm}.weight" for norm in NORMS}
# OLMo's norms learn nothing: ours begin with a gain of one and no bias, and export only so.
OLMO_RULES = (
    *(rule for rule in RULES if rule.ours not in GAINS),
    *(Rule(f"{norm}.weight", (), Ones("hidden_size")) for norm in NORMS),
    *(Rule(f"{norm}.bias", (), Zeros("hidden_size")) for norm in NORMS),
)
OLMO_FIELDS = tuple(name for name in SAME_FIELDS if name != "rms_norm_eps")
UNBIASED = "layernorm_unbiased"
OLMO_FIXED = {
    **LIKE_LLAMA,
    "norm_type": UNBIASED,
    "layer_norm_eps": 1e-5,
    "mlp_bias": False,
}


def olmo_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", clip_qkv=None)
    return {
        **carry(theirs, (*OLMO_FIELDS, "attention_bias")),
        **OLMO_FIXED,
        "head_dim": head_size(theirs),
        "attention_output_bias": theirs.attention_bias,
        "rope_parameters": full_rotation(theirs, "OLMo"),
    }


def olmo_to_theirs(ours: Config) -> Fields:
    choose(ours, "OLMo", norm_type=(UNBIASED, "layernorm"))
    require(ours, "OLMo", **{**OLMO_FIXED, "norm_type": ours.norm_type})
    require(ours, "OLMo", attention_output_bias=ours.attention_bias)
    plain_attention_scale(ours, "OLMo")
    return {
        **carry(ours, (*OLMO_FIELDS, "attention_bias", "head_dim")),
        "rope_parameters": full_rotation(ours, "OLMo"),
    }


# theirs → ours
SEED_OSS_FIELDS = {
    **{name: name for name in (*SAME_FIELDS, "attention_bias", "mlp_bias", "head_dim")},
    "attention_out_bias": "attention_output_bias",
    "residual_dropout": "dropout",
}


def seed_oss_to_ours(theirs: Config) -> Fields:
    rope = full_rotation(theirs, "Seed-OSS")
    return {**carry(theirs, SEED_OSS_FIELDS), **LIKE_LLAMA, "rope_parameters": rope}


def seed_oss_to_theirs(ours: Config) -> Fields:
    require(ours, "Seed-OSS", **LIKE_LLAMA)
    plain_attention_scale(ours, "Seed-OSS")
    rope = full_rotation(ours, "Seed-OSS")
    return {**carry(ours, inverted(SEED_OSS_FIELDS)), "rope_parameters": rope}


ARCEE_FIXED = {**LIKE_LLAMA, "mlp_type": "plain"}
ARCEE_FIELDS = (*SAME_FIELDS, "head_dim", "attention_bias", "mlp_bias")


def arcee_to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, ARCEE_FIELDS),
        **ARCEE_FIXED,
        "attention_output_bias": theirs.attention_bias,
        "rope_parameters": full_rotation(theirs, "Arcee"),
    }


def arcee_to_theirs(ours: Config) -> Fields:
    require(ours, "Arcee", **ARCEE_FIXED, attention_output_bias=ours.attention_bias)
    plain_attention_scale(ours, "Arcee")
    return {**carry(ours, ARCEE_FIELDS), "rope_parameters": full_rotation(ours, "Arcee")}


FORMATS = (
    llama_format("olmo", "Olmo", olmo_to_ours, olmo_to_theirs, OLMO_RULES, "OLMo 1B and 7B"),
    llama_format(
        "seed_oss", "SeedOss", seed_oss_to_ours, seed_oss_to_theirs, released="Seed-OSS 36B"
    ),
    llama_format("arcee", "Arcee", arcee_to_ours, arcee_to_theirs, released="Arcee AFM 4.5B"),
)
