# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""One layer: self-attention, then an MLP, each with a norm and a residual connection.

    hidden_states [batch, seq, hidden] → the same shape

Attention is in attention.py. A CODEPATH comment names the checkpoints on each side of a choice.
"""

from collections.abc import Callable
from functools import partial
from operator import mul

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import SelfAttention
from .norms import OffsetNorm, build_norm, optional_norm, unchanged


def build_activation(name: str) -> nn.Module:
    """Return an activation by transformers' name, in the default dtype as all parameters."""
    if name in ("gelu_accurate", "gelu_fast", "gelu_new"):  # torch has one operation for these
        name = "gelu_pytorch_tanh"
    return ACT2FN[name].to(torch.get_default_dtype())


def embedding_scale(config: PreTrainedConfig) -> float:
    """Return the factor of embeddings. Reads from config: scale_embedding, hidden_size."""
    # CODEPATH: True in the 2017 paper, Marian and Gemma; a number in Granite; False in Llama
    is_root = config.scale_embedding is True
    return config.hidden_size**0.5 if is_root else float(config.scale_embedding or 1.0)


def build_dropout(config: PreTrainedConfig) -> Callable:
    """Build the dropout. Reads from config: dropout."""
    # CODEPATH: BART and Marian train with dropout; Llama, Mistral and Qwen without
    return nn.Dropout(config.dropout) if config.dropout else unchanged


class MLP(nn.Module):
    """Up, activation, down.

    Reads from config: hidden_size, intermediate_size, mlp_bias, hidden_act.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)
        self.act_fn = build_activation(config.hidden_act)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.up_proj(hidden_states)))


class GatedMLP(MLP):
    """An MLP whose inner values are gated by a second projection (Shazeer 2020): SwiGLU, GeGLU."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=config.mlp_bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        gate = self.act_fn(self.gate_proj(hidden_states))
        return self.down_proj(gate * self.up_proj(hidden_states))


MLPS = {"gated": GatedMLP, "plain": MLP}


def build_output(config: PreTrainedConfig) -> Callable:
    """Build what follows o_proj or down_proj before the sum: a norm, a factor or nothing.

    Reads from config: norm_position, residual_multiplier (where the family has it), hidden_size
    (+ the norm's fields).
    """
    # CODEPATH: OLMo-2 and Gemma 2 normalise it
    if config.norm_position in ("inside", "both"):
        return build_norm(config, config.hidden_size)
    # CODEPATH: Granite multiplies it; Llama and the others add it as it is
    factor = getattr(config, "residual_multiplier", 1.0)
    return unchanged if factor == 1.0 else partial(mul, factor)


def pre_norm(layer: "Layer", hidden_states: Tensor, **inputs: object) -> Tensor:
    """Add f(norm(x)) to x for each sub-layer f; with "inside" the norm follows f instead."""
    attended, _ = layer.self_attn(layer.self_attn_norm(hidden_states), **inputs)
    hidden_states = hidden_states + layer.dropout(layer.self_attn_output(attended))
    changed = layer.mlp(layer.mlp_norm(hidden_states))
    return hidden_states + layer.dropout(layer.mlp_output(changed))


def post_norm(layer: "Layer", hidden_states: Tensor, **inputs: object) -> Tensor:
    """Normalise each sum, in the order of the 2017 paper, BART and Marian."""
    attended, _ = layer.self_attn(hidden_states, **inputs)
    attended = layer.dropout(layer.self_attn_output(attended))
    hidden_states = layer.self_attn_norm(hidden_states + attended)
    changed = layer.dropout(layer.mlp_output(layer.mlp(hidden_states)))
    return layer.mlp_norm(hidden_states + changed)


# CODEPATH: pre in Llama and GPT-2, post in BERT, inside (no norm before) in OLMo-2, both in Gemma 2
ARRANGEMENTS = {"pre": pre_norm, "inside": pre_norm, "both": pre_norm, "post": post_norm}


class Layer(GradientCheckpointingLayer):
    """Self-attention, then an MLP. Each family has a subclass with a name of its own.

    Reads from config: norm_position, mlp_type, hidden_size, dropout (+ the fields of attention,
    norm, output and MLP).
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        layer_idx: int,
        is_causal: bool,
        sliding_window: int | None = None,
    ):
        super().__init__()
        self.self_attn = SelfAttention(config, layer_idx, is_causal, sliding_window)
        self.mlp = MLPS[config.mlp_type](config)
        reads_norm = config.norm_position != "inside"
        self.self_attn_norm = optional_norm(config, reads_norm)
        self.mlp_norm = optional_norm(config, reads_norm)
        self.self_attn_output, self.mlp_output = build_output(config), build_output(config)
        self.dropout = build_dropout(config)
        self.run_sublayers = ARRANGEMENTS[config.norm_position]  # a plain function, not a method

    def forward(
        self, hidden_states: Tensor, position_bias: Tensor | None = None, **inputs: object
    ) -> Tensor:
        """Apply the layer; `inputs` are those of attention: mask, rotation, cache and others."""
        # Positional: reentrant checkpointing drops the gradients of keyword arguments.
        if position_bias is not None:
            inputs["position_bias"] = position_bias
        return self.run_sublayers(self, hidden_states, **inputs)


def keep_positions(hidden_states: Tensor, logits_to_keep: int | Tensor) -> Tensor:
    """Keep the positions whose logits are wanted: all for 0, the last n, or the given indices."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:] if logits_to_keep else hidden_states
    return hidden_states[:, logits_to_keep]


class TformerPreTrainedModel(PreTrainedModel):
    """Base class that tells transformers how to load, initialise, shard and observe models."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _skip_keys_device_placement = ["past_key_values", "cache"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        # CODEPATH: Glorot-uniform in the code of the 2017 paper; normal in Llama and BART
        if self.config.initializer == "xavier_uniform" and isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
        if isinstance(module, OffsetNorm):
            init.zeros_(module.weight)

    def post_init(self) -> None:
        """Drop tensor-parallel plan entries that name no module with weights here."""
        super().post_init()
        unsharded = set()  # modules that need all heads in each process
        # CODEPATH: T5's bias differs by head; Llama, Qwen3 and BART have none
        if self.config.score_bias:
            unsharded = {"self_attn"}
        # CODEPATH: OLMo-2 normalises all heads together; the others each, or none
        if self.config.qk_norm == "all":
            unsharded = {"self_attn", "cross_attn"}
        modules = self.named_modules()
        real = (name for name, module in modules if not isinstance(module, nn.Identity))
        names = {name.replace("layers.0.", "layers.*.") for name in real}
        names = {name for name in names if not unsharded & {*name.split(".")}}
        plan = self._tp_plan.items()
        self._tp_plan = {pattern: style for pattern, style in plan if pattern in names}

    @classmethod
    def maybe_distribute_model(cls, model: nn.Module, layout: object, *mesh: object) -> nn.Module:
        """Refuse layouts that transformers alone would train wrongly, and hf_tformer does right."""
        if layout is not None:
            shards = layout.fsdp_size * layout.tp_size if layout.fsdp_size > 1 else 1
            is_uneven = model.all_tied_weights_keys and model.config.vocab_size % shards
            if is_uneven or layout.pp_size > 1:
                raise ValueError(
                    f"fsdp_size is {layout.fsdp_size} and pp_size {layout.pp_size}: stages, and "
                    f"a vocab_size ({model.config.vocab_size}) of tied tables that {shards} "
                    "processes do not divide, need `pip install hf-tformer`"
                )
        return super().maybe_distribute_model(model, layout, *mesh)
