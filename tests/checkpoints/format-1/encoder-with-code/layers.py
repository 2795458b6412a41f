# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""One layer: self-attention, then an MLP, each with a norm and a residual connection.

    hidden_states [batch, seq, hidden] → the same shape

Attention is in attention.py. A CODEPATH comment names the checkpoints on each side of a choice.
"""

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import SelfAttention
from .norms import build_norm, unchanged

# transformers computes these step by step; torch has one operation for the same formula.
SPELLED_OUT = ("gelu_accurate", "gelu_fast", "gelu_new")


def build_activation(name: str) -> nn.Module:
    """By transformers' name. xIELU makes its parameters in bfloat16: converted here."""
    # CODEPATH: gelu_new in GPT-2
    name = "gelu_pytorch_tanh" if name in SPELLED_OUT else name
    return ACT2FN[name].to(torch.get_default_dtype())


def build_dropout(config):
    """Reads from config: dropout. Where it is 0, Dropout(0) would only cost time."""
    # CODEPATH: BART and Marian train with dropout; Llama, Mistral and Qwen without
    return nn.Dropout(config.dropout) if config.dropout else unchanged


class MLP(nn.Module):
    """Up, activation, down.

    Reads from config: hidden_size, intermediate_size, mlp_bias, hidden_act.
    """

    def __init__(self, config):
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)
        self.act_fn = build_activation(config.hidden_act)

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
        gate = self.act_fn(self.gate_proj(hidden_states))
        return self.down_proj(gate * self.up_proj(hidden_states))


MLPS = {"gated": GatedMLP, "plain": MLP}


def pre_norm(hidden_states, norm, sublayer, dropout):
    """The hidden states that are passed on are never normalised: gradients reach every layer."""
    return hidden_states + dropout(sublayer(norm(hidden_states)))


def post_norm(hidden_states, norm, sublayer, dropout):
    """The order of the 2017 paper, BART and Marian."""
    return norm(hidden_states + dropout(sublayer(hidden_states)))


RESIDUALS = {"pre": pre_norm, "post": post_norm}


class Layer(GradientCheckpointingLayer):
    """Self-attention, then an MLP. Each family has a subclass with a name of its own.

    Reads from config: norm_position, mlp_type, dropout (+ the fields of attention, norm and MLP).
    """

    def __init__(self, config, layer_idx: int, is_causal: bool, sliding_window: int | None = None):
        super().__init__()
        self.self_attn = SelfAttention(config, layer_idx, is_causal, sliding_window)
        self.mlp = MLPS[config.mlp_type](config)
        self.self_attn_norm = build_norm(config, config.hidden_size)
        self.mlp_norm = build_norm(config, config.hidden_size)
        self.dropout = build_dropout(config)
        self.residual = RESIDUALS[config.norm_position]

    def forward(
        self,
        hidden_states,
        attention_mask=None,
        position_embeddings=None,
        past_key_values=None,
        **kwargs,
    ):
        def attend(states):
            return self.self_attn(
                states, attention_mask, position_embeddings, past_key_values, **kwargs
            )[0]

        hidden_states = self.residual(hidden_states, self.self_attn_norm, attend, self.dropout)
        return self.residual(hidden_states, self.mlp_norm, self.mlp, self.dropout)


def keep_positions(hidden_states, logits_to_keep):
    """The positions whose logits are wanted: all for 0, the last n for n, or the given indices."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:] if logits_to_keep else hidden_states
    return hidden_states[:, logits_to_keep]


def initialise_projection(config, module: nn.Module) -> None:
    """Replaces transformers' normal initialisation of linear layers, where config says so."""
    # CODEPATH: Glorot-uniform in the code of the 2017 paper; normal in Llama and BART
    if config.initializer == "xavier_uniform" and isinstance(module, nn.Linear):
        init.xavier_uniform_(module.weight)


def plan_for(model: nn.Module, plan: dict) -> dict:
    """The entries of a parallel plan whose module this model has; nn.Identity does not count."""
    real = (name for name, module in model.named_modules() if not isinstance(module, nn.Identity))
    names = {name.replace("layers.0.", "layers.*.") for name in real}
    return {pattern: style for pattern, style in plan.items() if pattern in names}
