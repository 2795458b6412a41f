# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Distances that count as they are (ALiBi, Press 2022)."""

import torch

from .biases import NoBias, ScoreBias


class LinearBias(ScoreBias):
    """A distance lowers the score, in each head by a slope of its own."""

    def of(self, distance):
        slopes = slopes_of(self.config.num_attention_heads)
        slopes = torch.tensor(slopes, device=distance.device)[:, None, None]
        return [-slopes * distance.abs()] * self.layers


def slopes_of(heads: int) -> list[float]:
    """A geometric row that ends at 1 / 256; between two powers of 2, every other of the next."""
    whole = 2 ** (heads.bit_length() - 1)
    row = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
    between = [2 ** (-4 * (i + 1) / whole) for i in range(0, 2 * (heads - whole), 2)]
    return row + between


def build_linear_bias(config):
    """Reads from config: score_bias, num_hidden_layers, num_attention_heads."""
    layers = config.num_hidden_layers
    # CODEPATH: BLOOM and MPT; Llama, GPT-2 and the others have none
    return LinearBias(config, layers, is_causal=True) if config.score_bias else NoBias(layers)
