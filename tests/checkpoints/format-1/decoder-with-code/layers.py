# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The leaves of a layer: norms, MLPs, and the two orders of norm and residual branch."""

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN


class RMSNorm(nn.Module):
    """Divides by the root mean square over the last dimension (Zhang and Sennrich 2019)."""

    def __init__(self, size, eps):
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


def build_norm(config, size):
    """Reads from config: norm_type, rms_norm_eps, layer_norm_eps."""
    # CODEPATH: rmsnorm in Llama, Mistral and Qwen; layernorm in GPT-2, BART and Marian
    if config.norm_type == "rmsnorm":
        return RMSNorm(size, config.rms_norm_eps)
    return nn.LayerNorm(size, eps=config.layer_norm_eps)


def optional_norm(config, wanted):
    """A norm over the hidden size where one is wanted, else nothing."""
    return build_norm(config, config.hidden_size) if wanted else nn.Identity()


def build_dropout(config):
    """Reads from config: dropout. Nothing at all costs less than dropping nothing."""
    # CODEPATH: BART and Marian train with dropout; Llama, Mistral and Qwen without
    return nn.Dropout(config.dropout) if config.dropout else nn.Identity()


# What transformers spells out in seven operations torch has as one.
SPELLED_OUT = ("gelu_accurate", "gelu_fast", "gelu_new")


def build_activation(config):
    """Reads from config: hidden_act."""
    # CODEPATH: gelu_new in GPT-2
    name = "gelu_pytorch_tanh" if config.hidden_act in SPELLED_OUT else config.hidden_act
    return ACT2FN[name]


class MLP(nn.Module):
    """Up, activation, down. Reads from config: hidden_size, intermediate_size, mlp_bias,
    hidden_act."""

    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(
            config.intermediate_size, config.hidden_size, bias=config.mlp_bias
        )
        self.act_fn = build_activation(config)

    def forward(self, hidden_states):
        return self.down_proj(self.act_fn(self.up_proj(hidden_states)))


class GatedMLP(MLP):
    """An MLP whose inner values are gated by a second projection (Shazeer 2020): SwiGLU, GeGLU."""

    def __init__(self, config):
        super().__init__(config)
        self.gate_proj = nn.Linear(
            config.hidden_size, config.intermediate_size, bias=config.mlp_bias
        )

    def forward(self, hidden_states):
        return self.down_proj(
            self.act_fn(self.gate_proj(hidden_states)) * self.up_proj(hidden_states)
        )


MLPS = {"gated": GatedMLP, "plain": MLP}


def pre_norm(hidden_states, norm, sublayer, dropout):
    """The stream itself is never normalised, so gradients reach every layer undamped."""
    return hidden_states + dropout(sublayer(norm(hidden_states)))


def post_norm(hidden_states, norm, sublayer, dropout):
    """The order of the 2017 paper, BART and Marian."""
    return norm(hidden_states + dropout(sublayer(hidden_states)))


RESIDUALS = {"pre": pre_norm, "post": post_norm}


def keep_positions(hidden_states, logits_to_keep):
    """The positions whose logits are wanted: all for 0, the last n for n, or the given indices."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:] if logits_to_keep else hidden_states
    return hidden_states[:, logits_to_keep]


def initialise_projection(config, module):
    """Replaces the normal start that transformers gives a linear layer, where another is wanted."""
    # CODEPATH: the 2017 paper and its teaching models are Glorot-uniform; Llama and BART are normal
    if config.initializer == "xavier_uniform" and isinstance(module, nn.Linear):
        init.xavier_uniform_(module.weight)


def plan_for(model, plan):
    """The entries of a parallel plan that name a module of this model: a plain MLP has no gate."""
    real = (name for name, module in model.named_modules() if not isinstance(module, nn.Identity))
    names = {name.replace("layers.0.", "layers.*.") for name in real}
    return {pattern: style for pattern, style in plan.items() if pattern in names}


__all__ = ["MLP", "GatedMLP", "RMSNorm"]
