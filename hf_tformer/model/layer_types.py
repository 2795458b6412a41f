# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Layers of two types: full attention, and attention within a sliding window.

Each type may rotate queries and keys with frequencies of its own.
"""

from collections.abc import Callable
from functools import partial

from transformers.configuration_utils import PreTrainedConfig, strict

from .configuration_base import TformerConfig, wrong
from .norms import unchanged

LAYER_TYPES = ("full_attention", "sliding_attention")


@strict
class LayerTypesConfig(TformerConfig):
    """Configuration of a family whose layers may differ in type.

    Two fields are attributes only where they mean something: `layer_types` (one entry per layer)
    where some layer slides, because a None there breaks caches and vLLM, and `rope_parameters` with
    rotary positions: one dict in transformers' format, or one for each layer type.
    """

    def take_layer_types(self, layer_types: list[str] | None) -> None:
        if layer_types is None:
            return
        if not isinstance(layer_types, (list, tuple)):
            raise wrong("layer_types", layer_types, "give a list with one entry per layer")
        if len(layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"layer_types has {len(layer_types)} entries for num_hidden_layers "
                f"({self.num_hidden_layers}): give one entry per layer"
            )
        if unknown := sorted({str(name) for name in layer_types} - set(LAYER_TYPES)):
            choice = "choose full_attention or sliding_attention for each layer"
            raise ValueError(f"layer_types holds {unknown}: {choice}")
        if "sliding_attention" not in layer_types:
            self.sliding_window = None
        elif self.sliding_window is None:
            raise ValueError(
                "layer_types holds sliding_attention but sliding_window is None: set sliding_window"
            )
        else:
            self.layer_types = list(layer_types)

    def ropes_in_use(self, rope: dict) -> dict:
        """Return the rotary parameters of layer types that occur; one flat dict if none slides."""
        if not is_by_layer_type(rope):
            return super().ropes_in_use(rope)
        in_use = sorted(set(getattr(self, "layer_types", LAYER_TYPES[:1])))
        if missing := set(in_use) - set(rope):
            raise ValueError(
                f"rope_parameters has no {' and no '.join(sorted(missing))}: give a dict for each "
                "type in layer_types, or one flat dict for all"
            )
        for name, value in rope.items():
            if name not in LAYER_TYPES or not isinstance(value, dict):
                remedy = "beside layer types, give nothing but a dict for each"
                raise wrong(f"rope_parameters[{name!r}]", value, remedy)
        used = {name: dict(rope[name]) for name in in_use}
        return used if hasattr(self, "layer_types") else used[LAYER_TYPES[0]]

    def convert_rope_params_to_dict(self, **kwargs: object) -> dict:
        """Complete one dict after the other: early versions of transformers 5 expect a flat one."""
        if not is_by_layer_type(self.rope_parameters):
            return super().convert_rope_params_to_dict(**kwargs)
        by_layer_type = self.rope_parameters
        for name in by_layer_type:
            self.rope_parameters = by_layer_type[name]
            rest = super().convert_rope_params_to_dict(**kwargs)
            by_layer_type[name] = self.rope_parameters
        self.rope_parameters = by_layer_type
        return rest

    def ropes(self) -> list[dict]:
        ropes = super().ropes()
        return list(ropes[0].values()) if ropes and is_by_layer_type(ropes[0]) else ropes


def is_by_layer_type(rope_parameters: dict | None) -> bool:
    """Return whether the rotary parameters are a dict for each layer type, as in Gemma 3."""
    return bool(rope_parameters) and not set(LAYER_TYPES).isdisjoint(rope_parameters)


def layer_type(config: PreTrainedConfig, layer_idx: int) -> str:
    """The type of one layer; `layer_types` is there only where some layer slides."""
    layer_types = getattr(config, "layer_types", None)
    return layer_types[layer_idx] if layer_types else "full_attention"


def layer_window(config: PreTrainedConfig, layer_idx: int) -> int | None:
    """Return the window of a layer in tokens, itself included (encoders: on each side), or None."""
    is_sliding = layer_type(config, layer_idx) == "sliding_attention"
    return config.sliding_window if is_sliding else None


def no_rotation(position_embeddings: object) -> None:
    """Ignore what rotates the other layers."""
    return None


def rotation_of_type(layer_type: str, position_embeddings: dict[str, object]) -> object:
    """Take out what rotates the layers of one type."""
    return position_embeddings[layer_type]


def layer_rotation(config: PreTrainedConfig, layer_idx: int) -> Callable:
    """Return the function that picks a layer's (cos, sin) from the result of its rotary module.

    Reads from config: no_rope_layers (where the family has it), rope_parameters, layer_types.
    """
    # CODEPATH: every fourth layer of SmolLM3 has no positions; all others rotate
    no_rope_layers = getattr(config, "no_rope_layers", None)
    if no_rope_layers and not no_rope_layers[layer_idx]:
        return no_rotation
    # CODEPATH: as in build_rotary
    if is_by_layer_type(getattr(config, "rope_parameters", None)):
        return partial(rotation_of_type, layer_type(config, layer_idx))
    return unchanged
