# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Biases that the distance between two tokens adds to the attention scores.

Each class returns the backend's `position_bias` [batch, heads, query, key] for each layer, or None.
Distances are counted in positions of the cache: padding moves both tokens alike.
"""

import math

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedConfig

BACKENDS = ("eager", "sdpa", "flex_attention")  # the others would drop the bias silently
BUCKETS, MAX_DISTANCE = 32, 128  # of every released model with relative biases


class NoBias(nn.Module):
    """Stands in models whose attention scores do not depend on distances."""

    def __init__(self, config: PreTrainedConfig, layers: int, is_causal: bool):
        super().__init__()
        self.config, self.layers, self.is_causal = config, layers, is_causal

    def forward(self, *states_and_cache: object) -> list:
        return [None] * self.layers


class PositionBias(NoBias):
    """Base class of the biases: computes distances, refuses backends that cannot add."""

    def __init__(self, config: PreTrainedConfig, layers: int, is_causal: bool):
        super().__init__(config, layers, is_causal)
        self.check_backend()

    def check_backend(self) -> None:
        name = self.config._attn_implementation
        if name not in (None, *BACKENDS):
            raise ValueError(
                f"score_bias is {self.config.score_bias!r}, which {name} attention cannot add: "
                f"load with attn_implementation={' or '.join(map(repr, BACKENDS))}"
            )

    def forward(self, hidden_states: Tensor, past_key_values: Cache | None = None) -> list:
        self.check_backend()
        length, device = hidden_states.shape[1], hidden_states.device
        past, keys, first = 0, length, 0
        if past_key_values is not None:
            past = past_key_values.get_seq_length()
            keys, first = past_key_values.get_mask_sizes(length, 0)
        queries = torch.arange(length, device=device) + past
        distance = torch.arange(keys, device=device) + first - queries[:, None]  # [query, key]
        # Expanded to the batch, because flex attention indexes each sequence.
        dtype, shape = hidden_states.dtype, (hidden_states.shape[0], -1, -1, -1)
        return [bias.to(dtype).expand(shape) for bias in self.biases_of(distance)]


class LinearBias(PositionBias):
    """A distance lowers the score, in each head by its own slope (ALiBi, Press 2022)."""

    def biases_of(self, distance: Tensor) -> list[Tensor]:
        slopes = slopes_of(self.config.num_attention_heads)
        slopes = torch.tensor(slopes, device=distance.device)[:, None, None]
        return [-slopes * distance.abs()] * self.layers


class RelativeBias(PositionBias):
    """One learned number for each head and bucket of distances, the same in all layers (T5)."""

    def __init__(self, config: PreTrainedConfig, layers: int, is_causal: bool):
        super().__init__(config, layers, is_causal)
        self.table = nn.Embedding(BUCKETS, config.num_attention_heads)

    def biases_of(self, distance: Tensor) -> list[Tensor]:
        bias = self.table(bucket_of(distance, self.is_causal)).permute(2, 0, 1)
        return [bias] * self.layers


class RelativeBiasPerLayer(PositionBias):
    """Relative biases with one table for each layer (UMT5)."""

    def __init__(self, config: PreTrainedConfig, layers: int, is_causal: bool):
        super().__init__(config, layers, is_causal)
        heads = config.num_attention_heads
        self.tables = nn.ModuleList(nn.Embedding(BUCKETS, heads) for _ in range(layers))

    def biases_of(self, distance: Tensor) -> list[Tensor]:
        bucket = bucket_of(distance, self.is_causal)
        return [table(bucket).permute(2, 0, 1) for table in self.tables]


# CODEPATH: alibi in BLOOM and MPT, relative in T5 and MPNet, per layer in UMT5; None in the others
BIASES = {None: NoBias, "alibi": LinearBias, "relative": RelativeBias}
BIASES["relative_per_layer"] = RelativeBiasPerLayer


def build_position_bias(config: PreTrainedConfig, layers: int, is_causal: bool) -> NoBias:
    """Build the position bias. Reads from config: score_bias, num_attention_heads."""
    return BIASES[config.score_bias](config, layers, is_causal)


def slopes_of(heads: int) -> list[float]:
    """Return ALiBi's slopes: 2^(-8i/n); if n is no power of 2, the rest are from 2n's list."""
    n = 2 ** (heads.bit_length() - 1)
    series = [2 ** (-8 * (i + 1) / n) for i in range(n)]
    return series + [2 ** (-4 * (i + 1) / n) for i in range(0, 2 * (heads - n), 2)]


def bucket_of(distance: Tensor, is_causal: bool) -> Tensor:
    """Return the bucket of each distance (key - query).

    Near distances have a bucket each, the others share buckets that widen with the distance, and
    all beyond MAX_DISTANCE share the last. Without a causal mask the second half is for later keys.
    """
    buckets = BUCKETS if is_causal else BUCKETS // 2
    away = (-distance).clamp(min=0) if is_causal else distance.abs()
    max_exact = buckets // 2  # smaller distances have a bucket each
    log_ratio = (away.float() / max_exact).log() / math.log(MAX_DISTANCE / max_exact)
    shared = (max_exact + (log_ratio * (buckets - max_exact)).long()).clamp(max=buckets - 1)
    bucket = away.where(away < max_exact, shared)
    return bucket if is_causal else bucket + (distance > 0) * buckets
