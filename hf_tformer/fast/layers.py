"""Layers as functions of plain tensors, made of as few operations as there can be.

    function(hidden_states, run) → hidden_states, each [tokens, hidden], or [hidden] of one token

A layer computes what its modules compute, up to rounding, without gradients. On a CPU a small model
spends most of its time on calling modules, and a large one much of it on writing down what lies
between two products. `run` knows how tokens attend to each other (passes.py).
"""

import torch
from torch import nn
from transformers.activations import GELUActivation

from ..model.layers import GatedMLP, post_norm, pre_norm
from ..model.norms import RMSNorm, unchanged
from .products import adding_product, linear_function

# Numbers that an MLP may hold at once. With more, the system would hand out their memory anew each
# time and clear it, which is a twentieth of the work.
WIDEST = 6 * 2**20
# Forward of an activation → the same in place. A class that was patched has another forward.
IN_PLACE = {
    GELUActivation.forward: torch.ops.aten.gelu_,
    nn.SiLU.forward: torch.ops.aten.silu_,
}


def stack_functions(stack, tokens: int) -> list:
    """The layers of a stack and the norm behind them, for so many tokens at once."""
    norm = norm_function(stack.norm)
    layers = [layer_function(layer, tokens) for layer in layers_of(stack)]
    return [*layers, lambda hidden_states, run: norm(hidden_states)]


def layers_of(stack):
    """The layers that a pass takes; an encoder always takes all that it has."""
    return stack.layers_in_use() if hasattr(stack, "layers_in_use") else stack.layers


def layer_function(layer, tokens):
    branches = [(self_attention_branch(layer.self_attn, tokens), layer.self_attn_norm)]
    if hasattr(layer, "cross_attn"):
        branches.append((cross_attention_branch(layer.cross_attn, tokens), layer.cross_attn_norm))
    branches.append((mlp_branch(layer.mlp, tokens), layer.mlp_norm))
    branches = [(branch, norm_function(norm)) for branch, norm in branches]
    add_branch = ADDITIONS[layer.arrange]

    def run_layer(hidden_states, run):
        for branch, norm in branches:
            hidden_states = add_branch(hidden_states, branch, norm, run)
        return hidden_states

    return run_layer


def add_pre_norm(hidden_states, branch, norm, run):
    return branch(hidden_states, norm(hidden_states), run)


def add_post_norm(hidden_states, branch, norm, run):
    return norm(branch(hidden_states, hidden_states, run))


# Arrangement of a layer → how a branch is added; seq2seq_patches() adds the encoder-decoder's.
ADDITIONS = {pre_norm: add_pre_norm, post_norm: add_post_norm}

# A branch adds what it computes of `states` to `total`, in place: branch(total, states, run).


def self_attention_branch(attention, tokens):
    query, key, value = (linear_function(getattr(attention, f"{x}_proj"), tokens) for x in "qkv")
    query_norm, key_norm = norm_function(attention.q_norm), norm_function(attention.k_norm)
    add_output, joined = adding_product(attention.o_proj, tokens), shape_of(tokens, -1)
    heads = shape_of(tokens, -1, attention.head_dim)
    value_heads = shape_of(tokens, -1, attention.value_head_dim)

    def branch(total, states, run):
        queries = query_norm(query(states).reshape(heads))
        keys = key_norm(key(states).reshape(heads))
        values = value(states).reshape(value_heads)
        output = run.attend(attention, queries, keys, values)
        return add_output(total, output.reshape(joined))

    return branch


def cross_attention_branch(attention, tokens):
    query, query_norm = linear_function(attention.q_proj, tokens), norm_function(attention.q_norm)
    add_output, joined = adding_product(attention.o_proj, tokens), shape_of(tokens, -1)
    heads = shape_of(tokens, -1, attention.head_dim)

    def branch(total, states, run):
        queries = query_norm(query(states).reshape(heads))
        return add_output(total, run.attend_source(attention, queries).reshape(joined))

    return branch


def shape_of(tokens, *sizes):
    return sizes if tokens == 1 else (tokens, *sizes)


def mlp_branch(mlp, tokens):
    up, add_down = linear_function(mlp.up_proj, tokens), adding_product(mlp.down_proj, tokens)
    activate = activation_function(mlp.act_fn)
    gate = linear_function(mlp.gate_proj, tokens) if isinstance(mlp, GatedMLP) else None

    def branch(total, states, run):
        if gate is None:
            return add_down(total, activate(up(states)))
        return add_down(total, activate(gate(states)).mul_(up(states)))

    parts = -(-tokens * mlp.up_proj.out_features // WIDEST)
    return branch if parts < 2 else by_parts(branch, -(-tokens // parts))


def by_parts(branch, size):
    """So many tokens at a time."""

    def branch_by_parts(total, states, run):
        for part, of in zip(total.split(size), states.split(size), strict=True):
            branch(part, of, run)
        return total

    return branch_by_parts


def activation_function(act_fn):
    """Of numbers that nobody else will read: in their place, where torch can do that."""
    if getattr(act_fn, "act", nn.functional.gelu) is not nn.functional.gelu:
        return act_fn.forward
    return IN_PLACE.get(type(act_fn).forward, act_fn.forward)


def norm_function(norm):
    if isinstance(norm, nn.LayerNorm):
        weight, bias, shape, eps = norm.weight, norm.bias, norm.normalized_shape, norm.eps
        return lambda states: torch.layer_norm(states, shape, weight, bias, eps)
    if isinstance(norm, RMSNorm):
        return rms_norm_function(norm)
    return unchanged  # nn.Identity, or the function itself


def rms_norm_function(norm):
    """√n · states / √(|states|² + n · eps): the same with half the operations of the definition.

    In float32 at least: the sum of squares of half precision is not exact enough.
    """
    size, stored = len(norm.weight), norm.weight.dtype
    exact = torch.promote_types(stored, torch.float32)
    weight = norm.weight.to(exact) * size**0.5
    least = weight.new_tensor((size * norm.eps) ** 0.5)

    def normalise(states):
        length = torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=exact)
        return (states / torch.hypot(length, least)).mul_(weight)

    return normalise if stored == exact else lambda states: normalise(states).to(stored)


def source_keys_and_values(attention, states):
    """[batch, source, hidden] → keys and values, [batch, kv_heads, source, …]"""
    shape, tokens = states.shape[:2], states.flatten(0, 1)
    count = max(len(tokens), 2)  # for a lone one, functions are made that take a vector
    key, value = (linear_function(p, count) for p in (attention.k_proj, attention.v_proj))
    keys = key(tokens).reshape(*shape, -1, attention.head_dim)
    values = value(tokens).reshape(*shape, -1, attention.value_head_dim)
    return norm_function(attention.k_norm)(keys).transpose(1, 2), values.transpose(1, 2)
