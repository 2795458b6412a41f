# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The kinds of layers: some see all tokens, some only those within a window; each kind may turn its
queries and keys at a pace of its own."""

from transformers.configuration_utils import strict

from .configuration_base import TformerConfig, wrong

LAYER_TYPES = ("full_attention", "sliding_attention")


@strict
class LayerTypesConfig(TformerConfig):
    """What the families have in common whose layers may differ in kind.

    Two fields are attributes only where they mean something: `layer_types` (one entry per layer)
    where some layer slides, for a None there trips caches and vLLM, and `rope_parameters` with
    rotary positions: a dict in transformers' words for all layers, or one for each kind of layer.
    """

    def take_layer_types(self, layer_types):
        if layer_types is None:
            return
        if not isinstance(layer_types, (list, tuple)):
            raise wrong("layer_types", layer_types, "give a list with one entry per layer")
        if len(layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"layer_types has {len(layer_types)} entries for num_hidden_layers "
                f"({self.num_hidden_layers}): give one entry per layer"
            )
        if unknown := sorted({str(kind) for kind in layer_types} - set(LAYER_TYPES)):
            raise ValueError(
                f"layer_types holds {unknown}: choose full_attention or sliding_attention for "
                "each layer"
            )
        if "sliding_attention" not in layer_types:
            self.sliding_window = None
        elif self.sliding_window is None:
            raise ValueError(
                "layer_types holds sliding_attention but sliding_window is None: set sliding_window"
            )
        else:
            self.layer_types = list(layer_types)

    def ropes_in_use(self, rope):
        """Of a dict for each kind of layer, those in use; one flat dict where no layer slides."""
        if not is_by_kind(rope):
            return super().ropes_in_use(rope)
        kinds = sorted(set(getattr(self, "layer_types", LAYER_TYPES[:1])))
        if missing := set(kinds) - set(rope):
            raise ValueError(
                f"rope_parameters has no {' and no '.join(sorted(missing))}: give a dict for each "
                "kind in layer_types, or one flat dict for all"
            )
        for name, value in rope.items():
            if name not in LAYER_TYPES or not isinstance(value, dict):
                remedy = "beside kinds of layers, give nothing but a dict for each"
                raise wrong(f"rope_parameters[{name!r}]", value, remedy)
        used = {kind: dict(rope[kind]) for kind in kinds}
        return used if hasattr(self, "layer_types") else used[LAYER_TYPES[0]]

    def convert_rope_params_to_dict(self, **kwargs):
        """One dict after the other: early versions of transformers 5 complete a flat one only."""
        if not is_by_kind(self.rope_parameters):
            return super().convert_rope_params_to_dict(**kwargs)
        by_kind = self.rope_parameters
        for kind in by_kind:
            self.rope_parameters = by_kind[kind]
            rest = super().convert_rope_params_to_dict(**kwargs)
            by_kind[kind] = self.rope_parameters
        self.rope_parameters = by_kind
        return rest

    def ropes(self):
        ropes = super().ropes()
        return list(ropes[0].values()) if ropes and is_by_kind(ropes[0]) else ropes


def is_by_kind(rope_parameters) -> bool:
    return bool(rope_parameters) and not set(LAYER_TYPES).isdisjoint(rope_parameters)


def layer_type(config, layer_idx: int) -> str:
    """The kind of one layer; `layer_types` is there only where some layer slides."""
    layer_types = getattr(config, "layer_types", None)
    return layer_types[layer_idx] if layer_types else "full_attention"


def window_of(config, kind: str) -> int | None:
    """How many tokens a layer of this kind sees, on each side and itself; None: all."""
    return config.sliding_window if kind == "sliding_attention" else None
