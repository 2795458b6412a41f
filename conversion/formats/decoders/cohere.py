"""Cohere (Command-R) and Cohere 2: Llama with attention beside the MLP, whose neighbours turn.

The layers of Cohere 2 that see all tokens do not turn at all. Command-R+ has a norm for each head.
"""

from ...engine.aliases import Config, Fields
from ...engine.format import carry, plain_attention_scale, require
from ...engine.rotations import full_rotation
from .glm import LLAMA_RULES
from .llama import ALL_OF_THEM, SAME_FIELDS, head_size, llama_format, windows

FIELDS = (
    *(name for name in SAME_FIELDS if name != "rms_norm_eps"),
    "layer_norm_eps",
    "logit_scale",
    "attention_bias",
)
FIXED = {
    **{name: value for name, value in ALL_OF_THEM.items() if name != "logit_scale"},
    "norm_type": "layernorm_unbiased",
    "parallel_residual": "shared",
    "qk_norm": False,
    "mlp_bias": False,
}


def to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "head_dim": head_size(theirs),
        "attention_output_bias": theirs.attention_bias,
        "rope_parameters": full_rotation(theirs, "Cohere"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "Cohere", **FIXED, attention_output_bias=ours.attention_bias)
    plain_attention_scale(ours, "Cohere")
    return {
        **carry(ours, (*FIELDS, "head_dim")),
        "rope_parameters": full_rotation(ours, "Cohere"),
    }


def cohere_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", use_qk_norm=False)
    return {**to_ours(theirs), "sliding_window": None}


def cohere_to_theirs(ours: Config) -> Fields:
    require(ours, "Cohere", sliding_window=None)
    return to_theirs(ours)


def cohere2_to_ours(theirs: Config) -> Fields:
    return {
        **to_ours(theirs),
        **carry(theirs, ("sliding_window", "layer_types")),
        "no_rope_layers": turns(theirs.layer_types),
    }


def cohere2_to_theirs(ours: Config) -> Fields:
    return {**to_theirs(ours), **windows(ours)}


def turns(layer_types: list[str]) -> list[int] | None:
    """1 for each layer that turns: those with a window."""
    marks = [int(kind == "sliding_attention") for kind in layer_types]
    return None if all(marks) else marks


FORMATS = (
    llama_format("cohere", "Cohere", cohere_to_ours, cohere_to_theirs, LLAMA_RULES, "Command-R"),
    llama_format(
        "cohere2",
        "Cohere2",
        cohere2_to_ours,
        cohere2_to_theirs,
        LLAMA_RULES,
        "Command-R7B, Command-A",
    ),
)
