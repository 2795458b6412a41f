# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The norms of a layer, over the last dimension."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig


class RMSNorm(nn.Module):
    """Divides by the root mean square over the last dimension (Zhang and Sennrich 2019)."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        # Under autocast the weight stays float32 while the input is narrower; the fused kernel
        # needs one dtype.
        weight = self.weight.to(hidden_states.dtype)
        return nn.functional.rms_norm(hidden_states, weight.shape, weight, self.eps)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, eps={self.eps}"


class OffsetNorm(RMSNorm):
    """RMSNorm whose stored weight is an offset from 1, as in Gemma; computed in float32.

    "RMSNorm" is no part of the name: transformers would initialise the weight as ones.
    """

    def __init__(self, size: int, eps: float):
        super().__init__(size, eps)
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, hidden_states: Tensor) -> Tensor:
        exact = torch.promote_types(hidden_states.dtype, torch.float32)
        states = hidden_states.to(exact)
        # vLLM replaces a norm whose forward only calls rms_norm by an RMSNorm of its own, which
        # would take the weight without the 1.
        normalised = nn.functional.rms_norm(states, self.weight.shape, eps=self.eps)
        return (normalised * (1 + self.weight.to(exact))).to(hidden_states.dtype)


class NormOfAllHeads(nn.Module):
    """One norm over all heads of a token, [batch, seq, heads, head_dim] → the same shape."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, heads: Tensor) -> Tensor:
        return self.norm(heads.flatten(-2)).view_as(heads)


def unchanged(hidden_states: Tensor) -> Tensor:
    """Stands for a missing norm of heads, factor or dropout: cheaper to call than nn.Identity."""
    return hidden_states


RMS_NORMS = {"rmsnorm": RMSNorm, "rmsnorm_offset": OffsetNorm}


def build_norm(config: PreTrainedConfig, size: int) -> nn.Module:
    """Build a norm. Reads from config: norm_type, rms_norm_eps, layer_norm_eps."""
    # CODEPATH: rmsnorm in Llama, Mistral and Qwen; layernorm in GPT-2, BART and Marian; without
    # its bias in ModernBERT and Cohere; rmsnorm_offset in Gemma
    if config.norm_type in RMS_NORMS:
        return RMS_NORMS[config.norm_type](size, config.rms_norm_eps)
    has_bias = config.norm_type == "layernorm"
    return nn.LayerNorm(size, eps=config.layer_norm_eps, bias=has_bias)


def build_head_norm(config: PreTrainedConfig, heads: int) -> Callable:
    """Build the norm of q or k. Reads from config: qk_norm, head_dim (+ the norm's fields)."""
    # CODEPATH: OLMo-2 normalises all heads of a token together
    if config.qk_norm == "all":
        return NormOfAllHeads(build_norm(config, heads * config.head_dim))
    # CODEPATH: Qwen3 and Gemma 3 normalise each head; Llama, GPT-2, BART and the others do not
    return build_norm(config, config.head_dim) if config.qk_norm else unchanged


def optional_norm(config: PreTrainedConfig, wanted: bool) -> nn.Module:
    """Return a norm over the hidden size or nn.Identity, as tools expect a module by its name."""
    return build_norm(config, config.hidden_size) if wanted else nn.Identity()
