# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The norms of a layer, over the last dimension."""

import torch
from torch import nn


class RMSNorm(nn.Module):
    """Divides by the root mean square over the last dimension (Zhang and Sennrich 2019)."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden_states):
        # Under autocast the weight stays float32 while the input is narrower; the fused kernel
        # wants one dtype.
        weight = self.weight.to(hidden_states.dtype)
        return nn.functional.rms_norm(hidden_states, weight.shape, weight, self.eps)

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.eps}"


def unchanged(hidden_states):
    """In place of a norm or a dropout that a model has not: cheaper to call than nn.Identity."""
    return hidden_states


def build_norm(config, size: int) -> nn.Module:
    """Reads from config: norm_type, rms_norm_eps, layer_norm_eps."""
    # CODEPATH: rmsnorm in Llama, Mistral and Qwen; layernorm in GPT-2, BART and Marian; without
    # its bias in ModernBERT
    if config.norm_type == "rmsnorm":
        return RMSNorm(size, config.rms_norm_eps)
    has_bias = config.norm_type == "layernorm"
    return nn.LayerNorm(size, eps=config.layer_norm_eps, bias=has_bias)


def optional_norm(config, wanted: bool) -> nn.Module:
    """A norm over the hidden size where one is wanted, else nothing."""
    return build_norm(config, config.hidden_size) if wanted else nn.Identity()
