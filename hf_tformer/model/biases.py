# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""What the distance between two tokens adds to the scores of attention: what all kinds share.

Each leaf gives the backend's `position_bias` [batch, heads, query, key] for each layer, or None.
Distances are counted in places of the cache: padding moves both tokens alike.
"""

import torch
from torch import nn

# The others would drop the bias without a word.
BACKENDS = ("eager", "sdpa", "flex_attention")


class NoBias(nn.Module):
    """Models whose positions are elsewhere."""

    def __init__(self, layers: int):
        super().__init__()
        self.layers = layers

    def forward(self, *states_and_cache):
        return [None] * self.layers


class ScoreBias(nn.Module):
    """What the leaves below have in common: the distances, and backends that can add."""

    def __init__(self, config, layers: int, is_causal: bool):
        super().__init__()
        self.config = config
        self.layers = layers
        self.is_causal = is_causal
        self.check_backend()

    def check_backend(self):
        name = self.config._attn_implementation
        if name not in (None, *BACKENDS):
            raise ValueError(
                f"score_bias is {self.config.score_bias!r}, which {name} attention cannot add: "
                f"load with attn_implementation={' or '.join(map(repr, BACKENDS))}"
            )

    def forward(self, hidden_states, past_key_values=None):
        self.check_backend()
        distance = distances(hidden_states, past_key_values)
        # A view for each text: flex attention looks up in all of them.
        dtype, shape = hidden_states.dtype, (hidden_states.shape[0], -1, -1, -1)
        return [bias.to(dtype).expand(shape) for bias in self.of(distance)]


def distances(hidden_states, past_key_values):
    """The place of each key less that of each query, [query, key]."""
    length, device = hidden_states.shape[1], hidden_states.device
    past, keys, first = 0, length, 0
    if past_key_values is not None:
        past = past_key_values.get_seq_length()
        keys, first = past_key_values.get_mask_sizes(length, 0)
    queries = torch.arange(length, device=device) + past
    return torch.arange(keys, device=device) + first - queries[:, None]
