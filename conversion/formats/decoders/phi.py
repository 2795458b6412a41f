"""Phi-1, Phi-1.5 and Phi-2: attention beside the MLP behind one norm, and biases everywhere."""

from ...engine.aliases import Config, Fields
from ...engine.format import (
    BIASES,
    DECODER,
    Format,
    carry,
    inverted,
    plain_attention_scale,
    require,
)
from ...engine.rules import Rule, linear
from .llama import ALL_OF_THEM, ATTENTION, IGNORED, MLP, SAME_FIELDS, head_size
from .stablelm import part_of_heads, said_twice

LAYER = "model.layers.{i}"
RULES = (
    Rule("model.embed_tokens.weight", "model.embed_tokens.weight"),
    *linear(f"{LAYER}.self_attn_norm", f"{LAYER}.input_layernorm"),
    *(rule for x in "qkv" for rule in linear(f"{ATTENTION}.{x}_proj", f"{ATTENTION}.{x}_proj")),
    *linear(f"{ATTENTION}.o_proj", f"{ATTENTION}.dense"),
    *linear(f"{MLP}.up_proj", f"{MLP}.fc1"),
    *linear(f"{MLP}.down_proj", f"{MLP}.fc2"),
    *linear("model.norm", "model.final_layernorm"),
    *linear("lm_head", "lm_head"),
)

# theirs → ours
FIELDS = {
    **{name: name for name in SAME_FIELDS if name != "rms_norm_eps"},
    "layer_norm_eps": "layer_norm_eps",
    "resid_pdrop": "dropout",
}
FIXED = {
    **ALL_OF_THEM,
    "norm_type": "layernorm",
    "parallel_residual": "shared",
    "qk_norm": False,
    "mlp_type": "plain",
    **dict.fromkeys((*BIASES, "lm_head_bias"), True),
    "sliding_window": None,
}


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", qk_layernorm=False)
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "head_dim": head_size(theirs),
        "rope_parameters": part_of_heads(theirs, "Phi"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "Phi", **FIXED)
    plain_attention_scale(ours, "Phi")
    return {
        **carry(ours, inverted(FIELDS)),
        "head_dim": ours.head_dim,
        "embd_pdrop": ours.dropout,
        **said_twice(part_of_heads(ours, "Phi")),
    }


FORMATS = (
    Format(
        "phi",
        RULES,
        to_ours,
        to_theirs,
        ("PhiConfig", "PhiForCausalLM"),
        DECODER,
        IGNORED,
        released="Phi-1, Phi-1.5, Phi-2",
    ),
)
