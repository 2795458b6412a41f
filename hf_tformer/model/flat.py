# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""One step of decoding without the calls of modules.

A single token beside a cache is so little work that a small model spends most of a step on calling
its modules. Here a layer is one function of plain tensors, made of as few operations as there can
be. It computes what the modules compute, up to rounding, and takes their place only where nothing
else takes part: no gradient, no hook, no adapter, no other device or backend.
"""

import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.output_capturing import _active_collector

from .attention import CrossAttention, SelfAttention, eager_attention
from .caching import writes_in_place
from .layers import MLP, GatedMLP, RMSNorm, pre_norm

# The modules that are not called here; of other classes, their forward is.
REPLACED = (
    nn.Linear,
    nn.Dropout,
    nn.LayerNorm,
    RMSNorm,
    SelfAttention,
    CrossAttention,
    MLP,
    GatedMLP,
)

# Numbers of rows for which a product takes half the time with its factors exchanged, measured with
# MKL and AVX512. With more rows and with fewer it is the other way round.
EXCHANGED = range(8, 64)


def flat_step(stack, layers, hidden_states, self_cache, *masks):
    """The layers as functions of tensors, or nothing where the modules have to be called.

    They are made once for each cache, which is once for each text.
    """
    has_past = writes_in_place(self_cache) and self_cache.layers
    if not (has_past and runs_flat(stack, hidden_states) and is_lone_token(hidden_states, masks)):
        return ()
    keeper, modules, rows = self_cache.layers[0], tuple(layers), hidden_states.shape[0]
    if keeper.flat_layers is None or keeper.flat_layers[0] != (modules, rows):
        parts = (part for layer in modules for part in layer.modules())
        steps = flatten_layers(layers, rows) if all(map(is_plain, parts)) else ()
        keeper.flat_layers = (modules, rows), steps
    return keeper.flat_layers[1]


def is_lone_token(hidden_states, masks):
    single = (1, 1)  # for all heads, of one query
    return hidden_states.shape[1] == 1 and all(m is None or m.shape[1:3] == single for m in masks)


def runs_flat(model, tensor):
    """Whether a step can be taken with such tensors here and now."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype in (torch.float32, torch.float64)  # narrower ones need care with sums
        and not (torch.is_grad_enabled() or torch.compiler.is_compiling() or model.training)
        and not torch.is_autocast_enabled("cpu")
        and not _active_collector.get()  # nobody wants to see what the modules return
        and backend_of(model) is sdpa_attention_forward
    )


def backend_of(model):
    return ALL_ATTENTION_FUNCTIONS.get_interface(model.config._attn_implementation, eager_attention)


def is_plain(module):
    """Whether calling it is its class's own forward, on its own parameters, and nothing else."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    is_hooked = any(map(is_watching, hooks)) or "forward" in vars(module)
    is_known = type(module) in REPLACED or not isinstance(module, REPLACED)
    tensors = (tensor for tensor in module._parameters.values() if tensor is not None)
    is_compiled = module._compiled_call_impl is not None
    plain = is_known and not is_hooked and not is_compiled
    return plain and all(type(tensor) is nn.Parameter for tensor in tensors)


def is_watching(hook):
    """The hooks by which transformers shows attention stay for ever after the first look."""
    return getattr(hook, "__name__", "") != "output_capturing_hook"


def flatten_layers(layers, rows):
    return [flatten_layer(layer, rows) for layer in layers]


def flatten_layer(layer, rows):
    """A layer that is called with [rows, hidden], or [hidden] of one row, and returns the same."""
    branches = [(flatten_self_attention(layer.self_attn, rows), flatten_norm(layer.self_attn_norm))]
    if hasattr(layer, "cross_attn"):
        branches.append(
            (flatten_cross_attention(layer.cross_attn, rows), flatten_norm(layer.cross_attn_norm))
        )
    branches.append((flatten_mlp(layer.mlp, rows), flatten_norm(layer.mlp_norm)))
    add_branch = add_pre_norm if layer.residual is pre_norm else add_post_norm

    def step(hidden_states, step_state):
        for branch, norm in branches:
            hidden_states = add_branch(hidden_states, branch, norm, step_state)
        return hidden_states

    return step


def add_pre_norm(hidden_states, branch, norm, step_state):
    return branch(hidden_states, norm(hidden_states), step_state)


def add_post_norm(hidden_states, branch, norm, step_state):
    return norm(branch(hidden_states, hidden_states, step_state))


def flatten_self_attention(attention, rows):
    query, key, value = (flatten_linear(getattr(attention, f"{x}_proj"), rows) for x in "qkv")
    query_norm, key_norm = flatten_norm(attention.q_norm), flatten_norm(attention.k_norm)
    attend, add_output = flatten_backend(attention, rows), flatten_sum(attention.o_proj, rows)
    index, value_size = attention.layer_idx, attention.value_head_dim
    heads = heads_of(rows, attention.head_dim)

    def branch(stream, states, step_state):
        queries, keys = query(states).reshape(heads), key(states).reshape(heads)
        queries, keys = query_norm(queries), key_norm(keys)
        if step_state.rotation is not None:
            queries, keys = queries @ step_state.rotation, keys @ step_state.rotation
        keys, values = step_state.self_cache.layers[index].update(
            keys.view(rows, -1, 1, heads[-1]), value(states).reshape(rows, -1, 1, value_size)
        )
        return add_output(stream, attend(queries, keys, values, step_state.self_mask))

    return branch


def flatten_cross_attention(attention, rows):
    query, query_norm = flatten_linear(attention.q_proj, rows), flatten_norm(attention.q_norm)
    attend, add_output = flatten_backend(attention, rows), flatten_sum(attention.o_proj, rows)
    index, heads = attention.layer_idx, heads_of(rows, attention.head_dim)

    def branch(stream, states, step_state):
        queries = query_norm(query(states).reshape(heads))
        source = step_state.cross_cache.layers[index]
        return add_output(
            stream, attend(queries, source.keys, source.values, step_state.cross_mask)
        )

    return branch


def heads_of(rows, size):
    return (-1, size) if rows == 1 else (rows, -1, size)


def flatten_backend(attention, rows):
    """sdpa of one query; those that share a key stand in a row, so nothing is copied for them."""
    groups, scale, size = attention.num_key_value_groups, attention.scaling, attention.head_dim
    joined = (-1,) if rows == 1 else (rows, -1)

    def attend(queries, keys, values, mask):
        output = nn.functional.scaled_dot_product_attention(
            queries.view(rows, -1, groups, size), keys, values, mask, scale=scale
        )
        return output.reshape(joined)

    return attend


def flatten_mlp(mlp, rows):
    up, add_down = flatten_linear(mlp.up_proj, rows), flatten_sum(mlp.down_proj, rows)
    activate = mlp.act_fn.forward
    if not isinstance(mlp, GatedMLP):
        return lambda stream, states, step_state: add_down(stream, activate(up(states)))
    gate = flatten_linear(mlp.gate_proj, rows)
    return lambda stream, states, step_state: add_down(
        stream, activate(gate(states)).mul_(up(states))
    )


def flatten_norm(norm):
    if isinstance(norm, nn.LayerNorm):
        weight, bias, shape, eps = norm.weight, norm.bias, norm.normalized_shape, norm.eps
        return lambda states: torch.layer_norm(states, shape, weight, bias, eps)
    return flatten_rms_norm(norm) if isinstance(norm, RMSNorm) else norm.forward


def flatten_rms_norm(norm):
    """√n · states / √(|states|² + n · eps): the same with half the operations of the definition."""
    size = len(norm.weight)
    weight = norm.weight * size**0.5
    least = norm.weight.new_tensor((size * norm.eps) ** 0.5)

    def normalise(states):
        length = torch.linalg.vector_norm(states, dim=-1, keepdim=True)
        return (states / torch.hypot(length, least)).mul_(weight)

    return normalise


def flatten_linear(linear, rows):
    """linear(states), by the product that is fastest for so many rows."""
    weight, bias = linear.weight, linear.bias
    if rows == 1:
        return weight.mv if bias is None else lambda states: torch.addmv(bias, weight, states)
    if rows not in EXCHANGED:
        return lambda states: nn.functional.linear(states, weight, bias)
    if bias is None:
        return lambda states: torch.mm(weight, states.t()).t()
    column = bias[:, None]
    return lambda states: torch.addmm(column, weight, states.t()).t()


def flatten_sum(linear, rows):
    """stream += linear(states), the product being added where it is made."""
    add, bias = adding_product(linear.weight, rows), linear.bias
    return add if bias is None else lambda stream, states: add(stream, states).add_(bias)


def adding_product(weight, rows):
    if rows == 1:
        return lambda stream, states: stream.addmv_(weight, states)
    if rows in EXCHANGED:
        return lambda stream, states: stream.add_(torch.mm(weight, states.t()).t())
    transposed = weight.t()
    return lambda stream, states: stream.addmm_(states, transposed)


def run_flat(steps, hidden_states, step_state):
    """[rows, 1, hidden] through all layers."""
    shape = hidden_states.shape
    hidden_states = hidden_states.flatten() if len(hidden_states) == 1 else hidden_states[:, 0]
    for step in steps:
        hidden_states = step(hidden_states, step_state)
    return hidden_states.view(shape)


class StepState:
    """What the layers of one step share."""

    def __init__(self, rotation, self_mask, self_cache, cross_mask=None, cross_cache=None):
        self.rotation = rotation  # of all rows alike [head_dim, head_dim], or of each
        self.self_mask, self.self_cache = self_mask, self_cache
        self.cross_mask, self.cross_cache = cross_mask, cross_cache


__all__ = ["StepState", "flat_step", "run_flat", "runs_flat"]
