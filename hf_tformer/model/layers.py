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
from .norms import OffsetNorm, build_norm, optional_norm, unchanged
from .positions import NoPositions

# transformers computes these step by step; torch has one operation for the same formula.
SPELLED_OUT = ("gelu_accurate", "gelu_fast", "gelu_new")


def build_activation(name: str) -> nn.Module:
    """By transformers' name. xIELU makes its parameters in bfloat16: converted here."""
    # CODEPATH: gelu_new in GPT-2
    name = "gelu_pytorch_tanh" if name in SPELLED_OUT else name
    return ACT2FN[name].to(torch.get_default_dtype())


def embedding_scale(config) -> float:
    """Reads from config: scale_embedding, hidden_size."""
    # CODEPATH: a number in Granite; the 2017 paper, Marian and Gemma scale by the root of the size;
    # Llama, GPT-2 and BART-large do not
    if config.scale_embedding is True:
        return config.hidden_size**0.5
    return float(config.scale_embedding or 1.0)


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


def pre_norm(hidden_states, norm, sublayer, output, dropout):
    """The hidden states that are passed on are never normalised: gradients reach every layer."""
    return hidden_states + dropout(output(sublayer(norm(hidden_states))))


def post_norm(hidden_states, norm, sublayer, output, dropout):
    """The order of the 2017 paper, BART and Marian."""
    return norm(hidden_states + dropout(output(sublayer(hidden_states))))


# Inside a residual connection stands no norm before the sub-layer, and one behind it.
RESIDUALS = {"pre": pre_norm, "inside": pre_norm, "both": pre_norm, "post": post_norm}


class Multiply(nn.Module):
    """By one number."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, hidden_states):
        return hidden_states * self.factor


def build_output(config):
    """What is made of the output of a sub-layer before it is added.

    Reads from config: norm_position, residual_multiplier (where the family has it), hidden_size
    (+ the norm's fields).
    """
    # CODEPATH: OLMo-2 and Gemma 2 normalise it
    if config.norm_position in ("inside", "both"):
        return build_norm(config, config.hidden_size)
    # CODEPATH: Granite multiplies it; Llama and the others add it as it is
    factor = getattr(config, "residual_multiplier", 1.0)
    return unchanged if factor == 1.0 else Multiply(factor)


def one_after_the_other(layer, hidden_states, attend):
    """The MLP reads what attention has added."""
    attended = layer.residual(
        hidden_states, layer.self_attn_norm, attend, layer.self_attn_output, layer.dropout
    )
    return layer.residual(attended, layer.mlp_norm, layer.mlp, layer.mlp_output, layer.dropout)


def side_by_side(layer, hidden_states, attend):
    """Both read the same hidden states, each through a norm of its own."""
    attended = layer.self_attn_output(attend(layer.self_attn_norm(hidden_states)))
    changed = layer.mlp_output(layer.mlp(layer.mlp_norm(hidden_states)))
    return hidden_states + layer.dropout(attended) + layer.dropout(changed)


def side_by_side_after_one_norm(layer, hidden_states, attend):
    """The same where both read through one norm."""
    normalised = layer.self_attn_norm(hidden_states)
    attended = layer.self_attn_output(attend(normalised))
    changed = layer.mlp_output(layer.mlp(normalised))
    return hidden_states + layer.dropout(attended) + layer.dropout(changed)


# CODEPATH: own in NeoX and Falcon-40B; shared in Phi-2, GPT-J, Cohere and Falcon-7B; else None
ARRANGEMENTS = {
    None: one_after_the_other,
    "own": side_by_side,
    "shared": side_by_side_after_one_norm,
}


class Layer(GradientCheckpointingLayer):
    """Self-attention, then an MLP. Each family has a subclass with a name of its own.

    Reads from config: norm_position, parallel_residual (where the family has it), mlp_type,
    hidden_size, dropout (+ the fields of attention, norm, output and MLP).
    """

    def __init__(self, config, layer_idx: int, is_causal: bool, sliding_window: int | None = None):
        super().__init__()
        self.self_attn = SelfAttention(config, layer_idx, is_causal, sliding_window)
        self.mlp = MLPS[config.mlp_type](config)
        parallel = getattr(config, "parallel_residual", None)
        reads_norm = config.norm_position != "inside"
        self.self_attn_norm = optional_norm(config, reads_norm)
        self.mlp_norm = optional_norm(config, reads_norm and parallel != "shared")
        self.self_attn_output, self.mlp_output = build_output(config), build_output(config)
        self.dropout = build_dropout(config)
        self.residual = RESIDUALS[config.norm_position]
        self.arrange = ARRANGEMENTS[parallel]

    def forward(
        self,
        hidden_states,
        position_bias=None,
        attention_mask=None,
        position_embeddings=None,
        past_key_values=None,
        **kwargs,
    ):
        """Bias without a keyword: reentrant checkpointing loses the gradients of the others."""
        if position_bias is not None:
            kwargs["position_bias"] = position_bias

        def attend(states):
            # The mask by its name: where a text is divided, accelerate takes it away by that.
            return self.self_attn(
                states,
                attention_mask=attention_mask,
                position_embeddings=position_embeddings,
                past_key_values=past_key_values,
                **kwargs,
            )[0]

        return self.arrange(self, hidden_states, attend)


def keep_positions(hidden_states, logits_to_keep):
    """The positions whose logits are wanted: all for 0, the last n for n, or the given indices."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:] if logits_to_keep else hidden_states
    return hidden_states[:, logits_to_keep]


def initialise(config, module: nn.Module) -> None:
    """What transformers does not know: other linear layers where config says so, our norms."""
    # CODEPATH: Glorot-uniform in the code of the 2017 paper; normal in Llama and BART
    if config.initializer == "xavier_uniform" and isinstance(module, nn.Linear):
        init.xavier_uniform_(module.weight)
    if isinstance(module, OffsetNorm):
        init.zeros_(module.weight)


def plan_for(model: nn.Module, plan: dict) -> dict:
    """The entries of a parallel plan whose module this model has; nn.Identity does not count.

    Attention stays whole in each process where all heads are needed at once.
    """
    config, whole = model.config, ()
    # CODEPATH: T5 adds to the scores of each head; those of Llama, Qwen3 and BART are alike
    if getattr(config, "score_bias", None):
        whole = ("self_attn",)
    # CODEPATH: OLMo-2 normalises all heads together; the others each, or none
    if config.qk_norm == "all":
        whole = ("self_attn", "cross_attn")
    plan = {name: style for name, style in plan.items() if not {*whole} & {*name.split(".")}}
    real = (name for name, module in model.named_modules() if not isinstance(module, nn.Identity))
    names = {name.replace("layers.0.", "layers.*.") for name in real}
    return {pattern: style for pattern, style in plan.items() if pattern in names}


class TiesBeforeSharding:
    """Makes tied tables one parameter before transformers shards them, and not only afterwards.

    Afterwards each would be padded for itself where the processes do not divide its rows: from the
    second step on, one of them would keep what it was loaded with, without an error.
    """

    @classmethod
    def maybe_distribute_model(cls, model, distributed_config, *mesh):
        if distributed_config is not None and distributed_config.fsdp_size > 1:
            pairs = model.all_tied_weights_keys.items()
            tied = {name.rpartition(".")[0] for pair in pairs for name in pair}
            if distributed_config.tp_size > 1 and tied & model.tp_plan.keys():
                refuse_to_cut(model, distributed_config.fsdp_size * distributed_config.tp_size)
            else:  # the root shards what no entry names, all users of a table together
                model.tie_weights(recompute_mapping=False)
                plan = model.fsdp_plan.items()
                model._fsdp_plan = {name: style for name, style in plan if name not in tied}
        model = super().maybe_distribute_model(model, distributed_config, *mesh)
        if distributed_config is not None and distributed_config.pp_size > 1:
            keep_own_stage(model.base_model)
        return model


def keep_own_stage(body: nn.Module) -> None:
    """Of a body whose other layers transformers has replaced by identities, which are asked what
    layers are asked."""
    if body.config.score_bias:
        raise ValueError(
            f"score_bias is {body.config.score_bias!r}, which counts distances in the cache of the "
            "first layer, and that is in another process: leave out pp_size"
        )
    if isinstance(body.layers[0], nn.Identity):
        take_embedded(body)
    own = [layer for layer in body.layers if not isinstance(layer, nn.Identity)]
    for layer in set(body.layers) - set(own):
        layer.attention_type, layer.own_rotation = own[0].attention_type, unchanged


def take_embedded(body: nn.Module) -> None:
    """What comes from the stage before is scaled, placed and normalised already."""
    body.embedding_scale, body.positions = 1.0, NoPositions()
    body.embed_norm, body.dropout = nn.Identity(), nn.Identity()
    if getattr(body, "embed_types", None) is not None:
        body.embed_types = None


def refuse_to_cut(model, parts: int) -> None:
    """Tied tables that are cut both ways stay two parameters: nothing may be padded."""
    if rest := model.config.vocab_size % parts:
        raise ValueError(
            f"vocab_size is {model.config.vocab_size}, and tied tables cannot be cut into "
            f"fsdp_size x tp_size = {parts} unequal parts: add {parts - rest} tokens by "
            "resize_token_embeddings(), or set one of the sizes to 1"
        )
