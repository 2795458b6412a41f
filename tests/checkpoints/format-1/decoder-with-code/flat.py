# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Layers as functions of plain tensors, made of as few operations as there can be.

    step(hidden_states, run) → hidden_states, each [rows, hidden], or [hidden] of one row

A row is a token: of one text or of many, `run` knows (runs.py). A layer computes what its modules
compute, up to rounding, on a CPU and without gradients. There a small model spends most of its time
on calling modules, and a large one much of it on writing down what lies between two products.
"""

import torch
from torch import nn

from .layers import GatedMLP, RMSNorm, pre_norm

# Numbers of rows for which a product takes half the time with its factors exchanged, measured with
# MKL and AVX512. With more rows and with fewer it is the other way round.
EXCHANGED = range(8, 64)


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

    def step(hidden_states, run):
        for branch, norm in branches:
            hidden_states = add_branch(hidden_states, branch, norm, run)
        return hidden_states

    return step


def add_pre_norm(hidden_states, branch, norm, run):
    return branch(hidden_states, norm(hidden_states), run)


def add_post_norm(hidden_states, branch, norm, run):
    return norm(branch(hidden_states, hidden_states, run))


def flatten_self_attention(attention, rows):
    query, key, value = (flatten_linear(getattr(attention, f"{x}_proj"), rows) for x in "qkv")
    query_norm, key_norm = flatten_norm(attention.q_norm), flatten_norm(attention.k_norm)
    add_output, joined = flatten_sum(attention.o_proj, rows), shape_of(rows, -1)
    heads = shape_of(rows, -1, attention.head_dim)
    value_heads = shape_of(rows, -1, attention.value_head_dim)

    def branch(stream, states, run):
        queries = query_norm(query(states).reshape(heads))
        keys = key_norm(key(states).reshape(heads))
        values = value(states).reshape(value_heads)
        output = run.attend(attention, queries, keys, values)
        return add_output(stream, output.reshape(joined))

    return branch


def flatten_cross_attention(attention, rows):
    query, query_norm = flatten_linear(attention.q_proj, rows), flatten_norm(attention.q_norm)
    add_output, joined = flatten_sum(attention.o_proj, rows), shape_of(rows, -1)
    heads = shape_of(rows, -1, attention.head_dim)

    def branch(stream, states, run):
        queries = query_norm(query(states).reshape(heads))
        return add_output(stream, run.attend_source(attention, queries).reshape(joined))

    return branch


def shape_of(rows, *sizes):
    return sizes if rows == 1 else (rows, *sizes)


def flatten_mlp(mlp, rows):
    up, add_down = flatten_linear(mlp.up_proj, rows), flatten_sum(mlp.down_proj, rows)
    activate = mlp.act_fn.forward
    if not isinstance(mlp, GatedMLP):
        return lambda stream, states, run: add_down(stream, activate(up(states)))
    gate = flatten_linear(mlp.gate_proj, rows)
    return lambda stream, states, run: add_down(stream, activate(gate(states)).mul_(up(states)))


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
    """linear(states). A bias is added afterwards: before, it would be written to be read again."""
    multiply, bias = product(linear.weight, rows), linear.bias
    return multiply if bias is None else lambda states: multiply(states).add_(bias)


def product(weight, rows):
    """Of the states of so many rows with a weight, by the function that is fastest for them."""
    if rows == 1:
        return weight.mv
    if rows in EXCHANGED:
        return lambda states: torch.mm(weight, states.t()).t()
    return lambda states: nn.functional.linear(states, weight)


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


__all__ = ["flatten_layers", "flatten_linear", "flatten_norm"]
