"""Read what a format states about rotary positions and the scale of queries."""

from copy import deepcopy

from hf_tformer.model.layer_types import LAYER_TYPES, is_by_layer_type

from .aliases import Config, Fields
from .errors import ConversionError
from .format import meaning


def one_rotation(config: Config, format_name: str) -> Fields:
    """Return a copy of the rotary parameters, for a format with one rotation for all layers."""
    ropes = by_kind(config.rope_parameters)
    first = next(iter(ropes.values()))
    if any(other != first for other in ropes.values()):
        raise ConversionError(
            f"rope_parameters differ between {' and '.join(ropes)}, but {format_name} has one "
            "rotation for all layers: export to olmo3 or gemma3_text, whose layers may differ"
        )
    return deepcopy(first)


# Of Llama 3.1 to 3.3: what lowers the frequencies beside the factor, which a file tells.
SLOWED = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def rotation_of_llama(theta: float, factor: float | None) -> Fields:
    """Return the rotation of Llama, which has a factor since 3.1."""
    rope = {"rope_type": "llama3", "factor": float(factor), **SLOWED} if factor else {}
    return {"rope_type": "default", "rope_theta": float(theta), **rope}


def full_rotation(config: Config, format_name: str) -> Fields:
    """Return the rotation of whole heads: theirs ignores partial_rotary_factor, ours does not."""
    rope = one_rotation(config, format_name)
    refuse_part_of_heads(rope, format_name)
    return rope


def full_rotations(config: Config, format_name: str) -> dict[str, Fields]:
    """Return full rotations for a format that names each kind of layer, equal ones as well."""
    ropes = by_kind(config.rope_parameters)
    for one in ropes.values():
        refuse_part_of_heads(one, format_name)
    unused = next(iter(ropes.values()))  # in place of a kind that no layer is of
    return {kind: deepcopy(ropes.get(kind, unused)) for kind in LAYER_TYPES}


def by_kind(rope: Fields) -> dict[str, Fields]:
    """Return the parameters by kind of layer, without what transformers 5.16 writes beside them."""
    if not is_by_layer_type(rope):
        return dict.fromkeys(LAYER_TYPES, rope)
    return {kind: rope[kind] for kind in rope if kind in LAYER_TYPES}


def refuse_part_of_heads(rope: Fields, format_name: str) -> None:
    fraction = rope.get("partial_rotary_factor")
    if fraction not in (None, 1.0) and rope["rope_type"] != "proportional":
        raise ConversionError(
            f"rope_parameters['partial_rotary_factor'] is {fraction} with rope_type "
            f"{rope['rope_type']!r}, which {format_name} does not follow: only 1.0 converts"
        )


def any_part_of_heads(config: Config, format_name: str) -> Fields:
    """Return the rotation with its part of each head, which defaults to less in some formats."""
    return {"partial_rotary_factor": 1.0, **config.rope_parameters}


def part_of_heads(config: Config, format_name: str) -> Fields:
    """Return the rotation for formats that cut off the rest of each head before they rotate."""
    rope = any_part_of_heads(config, format_name)
    fraction = rope["partial_rotary_factor"]
    if rope["rope_type"] == "proportional" and fraction != 1.0:
        raise ConversionError(
            f"rope_parameters['partial_rotary_factor'] is {fraction} with rope_type "
            f"'proportional', which {format_name} cannot express: only 1.0 converts"
        )
    return rope


def query_scalar(ours: Config, format_name: str) -> int:
    """Return Gemma's query_pre_attn_scalar: the number whose root divides the attention scores."""
    scale = meaning(ours, "attention_scale")
    scalar = max(round(scale**-2), 1)
    if scalar**-0.5 != scale:
        raise ConversionError(
            f"attention_scale is {scale}, which {format_name} cannot express: only 1 / sqrt(n) of "
            "a whole number n converts"
        )
    return scalar
