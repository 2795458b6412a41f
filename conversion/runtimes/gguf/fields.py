"""The fields of a GGUF file that describe the model, without the prefix of the architecture."""

from hf_tformer.model.layer_types import is_by_layer_type

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError, UnexpressibleError
from .architectures import FULL, SLIDING, Architecture

# The defaults of yarn on both sides.
YARN = {"beta_fast": 32.0, "beta_slow": 1.0}
UNKNOWN_OF_YARN = {
    "attention_factor": None,
    "mscale": None,
    "mscale_all_dim": None,
    "truncate": True,
}


def fields_of(ours: Config, architecture: Architecture, format_name: str) -> Fields:
    eps = (
        {"attention.layer_norm_rms_epsilon": float(ours.rms_norm_eps)}
        if ours.norm_type.startswith("rms")
        else {"attention.layer_norm_epsilon": float(ours.layer_norm_eps)}
    )
    return {
        "vocab_size": ours.vocab_size,
        "context_length": ours.max_position_embeddings,
        "embedding_length": ours.hidden_size,
        "block_count": ours.num_hidden_layers,
        "feed_forward_length": ours.intermediate_size,
        "attention.head_count": ours.num_attention_heads,
        "attention.head_count_kv": ours.num_key_value_heads,
        "attention.key_length": ours.head_dim,
        "attention.value_length": ours.head_dim,
        **eps,
        **rotation(ours, architecture, format_name),
        **architecture.more(ours),
    }


def rotation(ours: Config, architecture: Architecture, format_name: str) -> Fields:
    if ours.position_embedding_type != "rotary":
        return {}
    rope = ours.rope_parameters
    by_kind = rope if is_by_layer_type(rope) else {FULL: rope, SLIDING: rope}
    full = by_kind.get(FULL) or by_kind[SLIDING]
    kind = full["rope_type"]
    if kind not in architecture.rotations:
        raise UnexpressibleError(
            "rope_parameters['rope_type']", kind, format_name, architecture.rotations
        )
    if ours.head_dim % 2:
        raise ConversionError(
            f"head_dim is {ours.head_dim}, but {format_name} rotates pairs of dimensions: only an "
            "even one converts"
        )
    fields = {
        "rope.dimension_count": int(ours.head_dim * full.get("partial_rotary_factor", 1.0)),
        "rope.freq_base": float(full["rope_theta"]),
    }
    if is_by_layer_type(rope) and SLIDING in rope:
        require_plain(rope[SLIDING], format_name)
        fields["rope.freq_base_swa"] = float(rope[SLIDING]["rope_theta"])
    scaling = SCALINGS.get(kind)
    return {**fields, **(scaling(full, format_name) if scaling else {})}


def require_plain(rope: Fields, format_name: str) -> None:
    if rope["rope_type"] != "default":
        raise ConversionError(
            f"rope_parameters['{SLIDING}']['rope_type'] is {rope['rope_type']!r}, which "
            f"{format_name} cannot express: only 'default' converts"
        )


def linear(rope: Fields, format_name: str) -> Fields:
    return {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}


def yarn(rope: Fields, format_name: str) -> Fields:
    for name, value in UNKNOWN_OF_YARN.items():
        if rope.get(name, value) != value:
            raise UnexpressibleError(
                f"rope_parameters[{name!r}]", rope[name], format_name, (value,)
            )
    betas = {f"rope.scaling.yarn_{name}": float(rope.get(name) or YARN[name]) for name in YARN}
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": float(rope["factor"]),
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        **betas,
    }


SCALINGS = {"linear": linear, "yarn": yarn}
