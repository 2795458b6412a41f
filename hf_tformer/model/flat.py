# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""One step of decoding without the calls of modules.

A single token beside a cache is so little work that a small model spends most of a step on calling
its modules. Here a layer is one function of plain tensors. It computes what the modules compute, in
the same order, and takes their place only where nothing else takes part: no gradient, no hook, no
adapter, no other device or backend.
"""

import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention import CrossAttention, SelfAttention, eager_attention
from .caching import RoomyLayer
from .layers import MLP, GatedMLP, pre_norm
from .positions import rotate

# The modules that are not called here. Norms and activations are.
REPLACED = (nn.Linear, nn.Dropout, SelfAttention, CrossAttention, MLP, GatedMLP)


def flat_step(model, layers, hidden_states, self_cache, *masks):
    """The layers as functions of [batch, hidden], or nothing where the modules have to be called.

    They are made once for each cache, which is once for each text.
    """
    if not is_lone_token(model, hidden_states, self_cache, masks):
        return ()
    keeper, modules = self_cache.layers[0], tuple(layers)
    if keeper.flat_layers is None or keeper.flat_layers[0] != modules:
        is_plain = all(map(is_no_more_than_its_weights, replaced_modules(modules)))
        steps = [flatten_layer(layer) for layer in modules] if is_plain else ()
        keeper.flat_layers = modules, steps
    return keeper.flat_layers[1]


def is_lone_token(model, hidden_states, self_cache, masks):
    return (
        hidden_states.shape[1] == 1
        and hidden_states.device.type == "cpu"
        and not (torch.is_grad_enabled() or torch.compiler.is_compiling() or model.training)
        and writes_in_place(self_cache)
        and backend_of(model) is sdpa_attention_forward
        and all(mask is None or mask.shape[1:3] == (1, 1) for mask in masks)
    )


def backend_of(model):
    return ALL_ATTENTION_FUNCTIONS.get_interface(model.config._attn_implementation, eager_attention)


def writes_in_place(cache):
    is_written = cache is not None and len(cache.layers) > 0
    return is_written and all(type(layer) is RoomyLayer for layer in cache.layers)


def replaced_modules(layers):
    """The layers, and what is in them except norms and activations, which are called here too."""
    for layer in layers:
        yield layer
        yield from (module for module in layer.modules() if isinstance(module, REPLACED))


def is_no_more_than_its_weights(module):
    """Whether calling it is its class's own forward, on its own parameters, and nothing else."""
    is_hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    is_known = type(module) in REPLACED or not isinstance(module, REPLACED)
    tensors = (tensor for tensor in module._parameters.values() if tensor is not None)
    return is_known and not is_hooked and all(type(t) is nn.Parameter for t in tensors)


def flatten_layer(layer):
    """A layer that is called with [batch, hidden], and returns the same."""
    branches = [(flatten_self_attention(layer.self_attn), layer.self_attn_norm)]
    if hasattr(layer, "cross_attn"):
        branches.append((flatten_cross_attention(layer.cross_attn), layer.cross_attn_norm))
    branches.append((flatten_mlp(layer.mlp), layer.mlp_norm))
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


def flatten_self_attention(attention):
    query, key, value = (flatten_linear(getattr(attention, f"{x}_proj")) for x in "qkv")
    add_output = flatten_sum(attention.o_proj)
    attend, index = flatten_backend(attention), attention.layer_idx
    size, value_size = attention.head_dim, attention.value_head_dim
    query_norm, key_norm = attention.q_norm, attention.k_norm

    def branch(stream, states, step_state):
        batch = states.shape[0]
        queries = query_norm(query(states).view(batch, -1, 1, size))
        keys = key_norm(key(states).view(batch, -1, 1, size))
        values = value(states).view(batch, -1, 1, value_size)
        if step_state.tables is not None:
            queries, keys = rotate(queries, *step_state.tables), rotate(keys, *step_state.tables)
        keys, values = step_state.self_cache.layers[index].update(keys, values)
        return add_output(stream, attend(queries, keys, values, step_state.self_mask))

    return branch


def flatten_cross_attention(attention):
    query, add_output = flatten_linear(attention.q_proj), flatten_sum(attention.o_proj)
    attend, index = flatten_backend(attention), attention.layer_idx
    size, query_norm = attention.head_dim, attention.q_norm

    def branch(stream, states, step_state):
        queries = query_norm(query(states).view(states.shape[0], -1, 1, size))
        source = step_state.cross_cache.layers[index]
        return add_output(
            stream, attend(queries, source.keys, source.values, step_state.cross_mask)
        )

    return branch


def flatten_backend(attention):
    """sdpa of one query; those that share a key stand in a row, so nothing is copied for them."""
    groups, scale = attention.num_key_value_groups, attention.scaling

    def attend(queries, keys, values, mask):
        batch, heads, _, size = queries.shape
        output = nn.functional.scaled_dot_product_attention(
            queries.view(batch, heads // groups, groups, size), keys, values, mask, scale=scale
        )
        return output.reshape(batch, -1)

    return attend


def flatten_mlp(mlp):
    up, add_down, activate = flatten_linear(mlp.up_proj), flatten_sum(mlp.down_proj), mlp.act_fn
    if not isinstance(mlp, GatedMLP):
        return lambda stream, states, step_state: add_down(stream, activate(up(states)))
    gate = flatten_linear(mlp.gate_proj)
    return lambda stream, states, step_state: add_down(
        stream, activate(gate(states)).mul_(up(states))
    )


def flatten_linear(linear):
    weight, bias = linear.weight, linear.bias
    return lambda states: nn.functional.linear(states, weight, bias)


def flatten_sum(linear):
    """stream + linear(states), the product being added where it is made."""
    weight, bias = linear.weight.t(), linear.bias

    def add(stream, states):
        total = torch.addmm(stream, states, weight)
        return total if bias is None else total.add_(bias)

    return add


def run_flat(steps, hidden_states, step_state):
    """[batch, 1, hidden] through all layers."""
    hidden_states = hidden_states[:, 0]
    for step in steps:
        hidden_states = step(hidden_states, step_state)
    return hidden_states.unsqueeze(1)


class StepState:
    """What the layers of one step share."""

    def __init__(self, tables, self_mask, self_cache, cross_mask=None, cross_cache=None):
        self.tables = tables
        self.self_mask, self.self_cache = self_mask, self_cache
        self.cross_mask, self.cross_cache = cross_mask, cross_cache


__all__ = ["StepState", "flat_step", "run_flat"]
