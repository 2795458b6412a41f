# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""What the distance between two tokens adds to the scores of attention.

Each leaf gives the backend's `position_bias` [batch, heads, query, key], or None.
"""

import torch
from torch import nn

BUCKETS, FAR = 32, 128  # of every released model
# The others would drop the bias without a word.
BACKENDS = ("eager", "sdpa", "flex_attention")


class NoBias(nn.Module):
    """Models whose positions are elsewhere."""

    def forward(self, hidden_states):
        return None


class RelativeBias(nn.Embedding):
    """One number for each head and range of distances (Raffel 2019): near ones have a range each,
    the others share ranges that widen with the distance, and all beyond FAR the last."""

    def __init__(self, config):
        super().__init__(BUCKETS, config.num_attention_heads)
        self.config = config
        self.check_backend()

    def check_backend(self):
        name = self.config._attn_implementation
        if name not in (None, *BACKENDS):
            raise ValueError(
                f"score_bias is {self.config.score_bias!r}, which {name} attention cannot add: "
                f"load with attn_implementation={' or '.join(map(repr, BACKENDS))}"
            )

    def forward(self, hidden_states):
        self.check_backend()
        batch, length = hidden_states.shape[:2]
        places = torch.arange(length, device=hidden_states.device)
        bias = super().forward(bucket_of(places - places[:, None]))  # [query, key, heads]
        return bias.permute(2, 0, 1).expand(batch, -1, -1, -1)


def bucket_of(distance):
    """The range of each distance (key - query); the second half is for keys that come later."""
    half = BUCKETS // 2
    exact, far = half // 2, distance.abs()
    steps = (far.float() / exact).log() / torch.tensor(FAR / exact).double().log().item()
    wide = (exact + (steps * (half - exact)).long()).clamp(max=half - 1)
    return (distance > 0) * half + far.where(far < exact, wide)


def build_score_bias(config):
    """Reads from config: score_bias, num_attention_heads."""
    # CODEPATH: MPNet; BERT, ModernBERT and the others have none
    return RelativeBias(config) if config.score_bias == "relative" else NoBias()
