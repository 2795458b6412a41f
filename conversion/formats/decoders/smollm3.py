"""SmolLM3: Llama with layers that do not turn, every fourth one as a rule."""

from ...engine.aliases import Config, Fields
from ...engine.format import carry, plain_attention_scale, require
from ...engine.rotations import full_rotation
from .llama import ALL_OF_THEM, SAME_FIELDS, head_size, layer_types_of, llama_format

FIXED = {**ALL_OF_THEM, "qk_norm": False}
FIELDS = (*SAME_FIELDS, "attention_bias", "mlp_bias")


def to_ours(theirs: Config) -> Fields:
    if "sliding_attention" in theirs.layer_types:  # else some backends see a window, some do not
        require(theirs, "hf_tformer", use_sliding_window=True)
    return {
        **carry(theirs, (*FIELDS, "layer_types", "sliding_window")),
        **FIXED,
        "no_rope_layers": list(theirs.no_rope_layers[: theirs.num_hidden_layers]),
        "attention_output_bias": theirs.attention_bias,
        "head_dim": head_size(theirs),
        "rope_parameters": full_rotation(theirs, "SmolLM3"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "SmolLM3", **FIXED, attention_output_bias=ours.attention_bias)
    plain_attention_scale(ours, "SmolLM3")
    return {
        **carry(ours, (*FIELDS, "head_dim", "sliding_window")),
        "use_sliding_window": ours.sliding_window is not None,
        "layer_types": layer_types_of(ours),
        "no_rope_layers": ours.no_rope_layers or [1] * ours.num_hidden_layers,
        "rope_parameters": full_rotation(ours, "SmolLM3"),
    }


FORMATS = (llama_format("smollm3", "SmolLM3", to_ours, to_theirs, released="SmolLM3"),)
