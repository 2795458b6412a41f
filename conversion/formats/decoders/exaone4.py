"""EXAONE 4: Qwen3 with its norms behind each branch; beside windows, full layers do not turn."""

from ...engine.aliases import Config, Fields
from ...engine.format import BIASES, carry, meaning, plain_attention_scale, require
from ...engine.rotations import full_rotation
from .llama import ALL_OF_THEM, SAME_FIELDS, head_size, layer_types_of, llama_format
from .olmo2 import BEHIND_ALONE

FIXED = {
    **ALL_OF_THEM,
    **dict.fromkeys(BIASES, False),
    "norm_position": "inside",
    "qk_norm": True,
}


def to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, (*SAME_FIELDS, "sliding_window", "layer_types")),
        **FIXED,
        "no_rope_layers": turning(theirs),
        "head_dim": head_size(theirs),
        "rope_parameters": full_rotation(theirs, "EXAONE 4"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "EXAONE 4", **FIXED)
    plain_attention_scale(ours, "EXAONE 4")
    # Where there is a window, full layers do not turn, though no layer may slide.
    unused = None if meaning(ours, "no_rope_layers") is None else ours.max_position_embeddings
    return {
        **carry(ours, (*SAME_FIELDS, "head_dim")),
        "sliding_window": ours.sliding_window or unused,
        "layer_types": layer_types_of(ours),
        "rope_parameters": full_rotation(ours, "EXAONE 4"),
    }


def turning(theirs: Config) -> list[int] | None:
    if theirs.sliding_window is None:
        return None
    return [int(kind == "sliding_attention") for kind in theirs.layer_types]


FORMATS = (llama_format("exaone4", "Exaone4", to_ours, to_theirs, BEHIND_ALONE, "EXAONE 4"),)
