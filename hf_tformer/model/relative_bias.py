# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Numbers that are learned for ranges of distances (Raffel 2019)."""

from torch import nn

from .biases import NoBias, ScoreBias

BUCKETS, FAR = 32, 128  # of every released model
LOG = {8: 2.0794415416798357, 16: 2.772588722239781}  # natural ones, of FAR / exact


class RelativeBias(ScoreBias):
    """One number for each head and range of distances, the same in all layers."""

    def __init__(self, config, layers: int, is_causal: bool):
        super().__init__(config, layers, is_causal)
        self.table = nn.Embedding(BUCKETS, config.num_attention_heads)

    def of(self, distance):
        bias = self.table(bucket_of(distance, self.is_causal)).permute(2, 0, 1)
        return [bias] * self.layers


class RelativeBiasPerLayer(ScoreBias):
    """The same with a table for each layer."""

    def __init__(self, config, layers: int, is_causal: bool):
        super().__init__(config, layers, is_causal)
        heads = config.num_attention_heads
        self.tables = nn.ModuleList(nn.Embedding(BUCKETS, heads) for _ in range(layers))

    def of(self, distance):
        bucket = bucket_of(distance, self.is_causal)
        return [table(bucket).permute(2, 0, 1) for table in self.tables]


def bucket_of(distance, is_causal: bool):
    """The range of each distance (key - query): near ones have a range each, the others share
    ranges that widen with the distance, and all beyond FAR the last.

    Where later keys are seen, the second half of the ranges is theirs.
    """
    half = BUCKETS if is_causal else BUCKETS // 2
    exact, far = half // 2, (-distance).clamp(min=0) if is_causal else distance.abs()
    wide = (far.float() / exact).log() / LOG[FAR // exact] * (half - exact)
    bucket = far.where(far < exact, (exact + wide.long()).clamp(max=half - 1))
    return bucket if is_causal else bucket + (distance > 0) * half


RELATIVE = {"relative": RelativeBias, "relative_per_layer": RelativeBiasPerLayer}


def build_relative_bias(config, layers: int, is_causal: bool):
    """Reads from config: score_bias, num_attention_heads."""
    # CODEPATH: relative in T5 and MPNet, per layer in UMT5; BART, Marian and BERT have none
    if config.score_bias is None:
        return NoBias(layers)
    return RELATIVE[config.score_bias](config, layers, is_causal)
