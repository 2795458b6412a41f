# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Rotary positions where layers differ: each kind turns at a pace of its own, or not at all."""

from torch import nn
from transformers.configuration_utils import PreTrainedConfig

from .layer_types import is_by_kind, layer_type
from .norms import unchanged
from .positions import build_rotation


class RotationByKind(nn.ModuleDict):
    """One rotation for each kind of layer, and what they give by the name of the kind.

    Reads from config: rope_parameters, layer_types (+ the rotation's fields).
    """

    def __init__(self, config):
        kinds = sorted({layer_type(config, index) for index in range(config.num_hidden_layers)})
        super().__init__({kind: build_rotation(one_rope(config, kind)) for kind in kinds})

    def forward(self, hidden_states, position_ids):
        return {kind: turn(hidden_states, position_ids) for kind, turn in self.items()}


def one_rope(config, kind):
    """What one rotation reads: transformers' formulas know flat rotary parameters alone."""
    rope = getattr(config, "rope_parameters", None)
    # CODEPATH: ModernBERT and Gemma 3 turn each kind of layer at its own pace; others all alike
    if not is_by_kind(rope):
        return config
    return PreTrainedConfig(
        position_embedding_type=config.position_embedding_type,
        rope_parameters=dict(rope[kind]),
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_attention_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_position_embeddings,
    )


def build_rotations(config):
    """Reads from config: rope_parameters (+ the fields of either)."""
    # CODEPATH: by kind in Gemma 3 and OLMo-3; one for all in Llama, Mistral and Qwen
    if is_by_kind(getattr(config, "rope_parameters", None)):
        return RotationByKind(config)
    return build_rotation(config)


def no_rotation(rotations):
    return None


class RotationOf:
    """The rotation of one kind of layer, out of all."""

    def __init__(self, kind: str):
        self.kind = kind

    def __call__(self, rotations):
        return rotations[self.kind]


def own_rotation(config, kind, layer_idx):
    """Of what build_rotations() gives, the part by which one layer turns.

    Reads from config: no_rope_layers, rope_parameters.
    """
    # CODEPATH: every fourth layer of SmolLM3 knows no positions; all others turn
    if config.no_rope_layers and not config.no_rope_layers[layer_idx]:
        return no_rotation
    # CODEPATH: as in build_rotations
    is_one_of_several = is_by_kind(getattr(config, "rope_parameters", None))
    return RotationOf(kind) if is_one_of_several else unchanged
