"""Layers as functions of plain tensors, made of as few operations as there can be.

    function(hidden_states, context) → hidden_states, each [tokens, hidden], or [hidden] of a token

A function computes what the modules of a layer compute, up to rounding, without gradients. On a CPU
a small model spends most of its time on calling modules, and a large one much of it on writing what
lies between two products. `context` is the tokens of the pass, and how they attend (passes.py).
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import GELUActivation

from ..model.attention import Attention
from ..model.layers import MLP, GatedMLP, Layer, post_norm, pre_norm
from ..model.norms import NormOfAllHeads, OffsetNorm, RMSNorm, unchanged
from .products import AddingFunction, TensorFunction, adding_product, linear_function
from .rotations import rotation_key

# Numbers that an MLP may hold at once. With more, the system would allocate their memory anew each
# time and clear it, which is a twentieth of the work.
WIDEST = 6 * 2**20
# Forward of an activation → the same in place. A class that was patched has another forward.
IN_PLACE = {GELUActivation.forward: torch.ops.aten.gelu_, nn.SiLU.forward: torch.ops.aten.silu_}


class AttentionContext:
    """The tokens of one pass; a subclass defines how they attend."""

    def attend(self, attention: Attention, rotation_key: str | None, *heads: Tensor) -> Tensor:
        """Return what attention computes of the heads [tokens, heads, head_dim] of all tokens.

        `heads` are queries, keys and values; the key says which rotation they take.
        """
        raise NotImplementedError

    def attend_source(self, attention: Attention, queries: Tensor) -> Tensor:
        """Return what cross-attention computes of the heads of all tokens."""
        raise NotImplementedError


Mask = Tensor | None  # as sdpa takes it; None hides nothing
LayerFunction = Callable[[Tensor, AttentionContext], Tensor]
# Adds in place what a sub-layer computes of the states: branch(total, states, context) → total.
Branch = Callable[[Tensor, Tensor, AttentionContext], Tensor]
NormedBranch = tuple[Branch, TensorFunction]
Arrangement = Callable[[Tensor, list[NormedBranch], AttentionContext], Tensor]


def stack_functions(stack: PreTrainedModel, tokens: int) -> list[LayerFunction]:
    """Return the layers of a stack and its final norm, as functions of so many tokens at once."""
    norm = norm_function(stack.norm)
    layers = [layer_function(layer, tokens) for layer in layers_of(stack)]
    return [*layers, lambda hidden_states, context: norm(hidden_states)]


def layers_of(stack: PreTrainedModel) -> Iterable[Layer]:
    """Return the layers that a pass takes; an encoder always takes all that it has."""
    return stack.layers_in_use() if hasattr(stack, "layers_in_use") else stack.layers


def layer_function(layer: Layer, tokens: int) -> LayerFunction:
    own = self_attention_branch(layer, tokens)
    branches = [(own, layer.self_attn_norm)]
    if hasattr(layer, "cross_attn"):
        cross = cross_attention_branch(layer.cross_attn, layer.cross_attn_output, tokens)
        branches.append((cross, layer.cross_attn_norm))
    change = BRANCHES[type(layer.mlp)](layer.mlp, layer.mlp_output, tokens)
    branches.append((change, layer.mlp_norm))
    normed = [(branch, norm_function(norm)) for branch, norm in branches]
    arrangement = ARRANGEMENTS[layer.run_sublayers]
    return lambda hidden_states, context: arrangement(hidden_states, normed, context)


def norms_before(
    hidden_states: Tensor, branches: list[NormedBranch], context: AttentionContext
) -> Tensor:
    """Add each branch, which reads normalised states."""
    for branch, norm in branches:
        hidden_states = branch(hidden_states, norm(hidden_states), context)
    return hidden_states


def norms_after(
    hidden_states: Tensor, branches: list[NormedBranch], context: AttentionContext
) -> Tensor:
    """Add each branch, then normalise the sum."""
    for branch, norm in branches:
        hidden_states = norm(branch(hidden_states, hidden_states, context))
    return hidden_states


# Arrangement of a layer → how its branches are added; patches.py adds those of the families.
ARRANGEMENTS: dict[Callable[..., Tensor], Arrangement] = {
    pre_norm: norms_before,
    post_norm: norms_after,
}


def side_by_side(
    hidden_states: Tensor, branches: list[NormedBranch], context: AttentionContext
) -> Tensor:
    """Add both branches, which read the same states, each through its own norm."""
    (attend, first), (change, second) = branches
    read = second(hidden_states)
    read = read.clone() if read is hidden_states else read  # the first branch adds in place
    return change(attend(hidden_states, first(hidden_states), context), read, context)


def side_by_side_with_one_norm(
    hidden_states: Tensor, branches: list[NormedBranch], context: AttentionContext
) -> Tensor:
    """Add both branches, which read the same states through one norm."""
    (attend, norm), (change, _) = branches
    read = norm(hidden_states)
    read = read.clone() if read is hidden_states else read
    return change(attend(hidden_states, read, context), read, context)


def adding_output(linear: nn.Linear, output: TensorFunction, tokens: int) -> AddingFunction:
    """Return a function that adds what a branch ends with: a projection, perhaps with a norm."""
    if output is unchanged:
        return adding_product(linear, tokens)
    project = linear_function(linear, tokens)
    change = norm_function(output) if isinstance(output, nn.Module) else output
    return lambda total, states: total.add_(change(project(states)))


def self_attention_branch(layer: Layer, tokens: int) -> Branch:
    attention, output, key_of_rotation = (
        layer.self_attn,
        layer.self_attn_output,
        rotation_key(layer),
    )
    query, key, value = (linear_function(getattr(attention, f"{x}_proj"), tokens) for x in "qkv")
    query_norm, key_norm = norm_function(attention.q_norm), norm_function(attention.k_norm)
    add_output, joined = adding_output(attention.o_proj, output, tokens), shape_of(tokens, -1)
    heads = shape_of(tokens, -1, attention.head_dim)
    value_heads = shape_of(tokens, -1, attention.value_head_dim)

    def branch(total: Tensor, states: Tensor, context: AttentionContext) -> Tensor:
        queries = query_norm(query(states).reshape(heads))
        keys = key_norm(key(states).reshape(heads))
        values = value(states).reshape(value_heads)
        attended = context.attend(attention, key_of_rotation, queries, keys, values)
        return add_output(total, attended.reshape(joined))

    return branch


def cross_attention_branch(attention: Attention, output: TensorFunction, tokens: int) -> Branch:
    query, query_norm = linear_function(attention.q_proj, tokens), norm_function(attention.q_norm)
    add_output, joined = adding_output(attention.o_proj, output, tokens), shape_of(tokens, -1)
    heads = shape_of(tokens, -1, attention.head_dim)

    def branch(total: Tensor, states: Tensor, context: AttentionContext) -> Tensor:
        queries = query_norm(query(states).reshape(heads))
        return add_output(total, context.attend_source(attention, queries).reshape(joined))

    return branch


def shape_of(tokens: int, *sizes: int) -> tuple[int, ...]:
    """Return the shape of states with these last dimensions; a single token is a vector."""
    return sizes if tokens == 1 else (tokens, *sizes)


def mlp_branch(mlp: MLP, output: TensorFunction, tokens: int) -> Branch:
    up = linear_function(mlp.up_proj, tokens)
    add_down = adding_output(mlp.down_proj, output, tokens)
    activate = activation_function(mlp.act_fn)
    gate = linear_function(mlp.gate_proj, tokens) if isinstance(mlp, GatedMLP) else None

    def branch(total: Tensor, states: Tensor, context: AttentionContext) -> Tensor:
        if gate is None:
            return add_down(total, activate(up(states)))
        return add_down(total, activate(gate(states)).mul_(up(states)))

    parts = -(-tokens * mlp.up_proj.out_features // WIDEST)
    return branch if parts < 2 else in_parts(branch, -(-tokens // parts))


# Class of an MLP → what makes a branch of it; experts.py adds the mixtures.
BRANCHES: dict[type[nn.Module], Callable[[Any, TensorFunction, int], Branch]] = {
    MLP: mlp_branch,
    GatedMLP: mlp_branch,
}


def in_parts(branch: Branch, size: int) -> Branch:
    """Return a branch that computes so many tokens at a time."""

    def branch_in_parts(total: Tensor, states: Tensor, context: AttentionContext) -> Tensor:
        for part, of in zip(total.split(size), states.split(size), strict=True):
            branch(part, of, context)
        return total

    return branch_in_parts


def activation_function(act_fn: nn.Module) -> TensorFunction:
    """Return an activation that works in place where torch can: nothing else reads its input."""
    if getattr(act_fn, "act", nn.functional.gelu) is not nn.functional.gelu:
        return act_fn.forward
    return IN_PLACE.get(type(act_fn).forward, act_fn.forward)


def norm_function(norm: TensorFunction) -> TensorFunction:
    if isinstance(norm, nn.LayerNorm):
        weight, bias, shape, eps = norm.weight, norm.bias, norm.normalized_shape, norm.eps
        return lambda states: torch.layer_norm(states, shape, weight, bias, eps)
    if isinstance(norm, RMSNorm):
        return rms_norm_function(norm)
    if isinstance(norm, NormOfAllHeads):
        normalise = norm_function(norm.norm)
        return lambda heads: normalise(heads.flatten(-2)).view(heads.shape)
    return unchanged  # nn.Identity, or the function itself


def rms_norm_function(norm: RMSNorm) -> TensorFunction:
    """Return √n · states / √(|states|² + n · eps): RMSNorm in half as many operations.

    In float32 at least: the sum of squares of half precision is not exact enough.
    """
    size, stored = len(norm.weight), norm.weight.dtype
    exact = torch.promote_types(stored, torch.float32)
    offset = 1.0 if isinstance(norm, OffsetNorm) else 0.0
    weight = (norm.weight.to(exact) + offset) * size**0.5
    least = weight.new_tensor((size * norm.eps) ** 0.5)

    def normalise(states: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=exact)
        return (states / torch.hypot(length, least)).mul_(weight)

    return normalise if stored == exact else lambda states: normalise(states).to(stored)


def source_keys_and_values(attention: Attention, states: Tensor) -> tuple[Tensor, Tensor]:
    """Project a source [batch, source, hidden] to keys and values, [batch, kv_heads, source, …]."""
    shape, tokens = states.shape[:2], states.flatten(0, 1)
    count = max(len(tokens), 2)  # for a single token, the functions would take a vector
    key, value = (linear_function(p, count) for p in (attention.k_proj, attention.v_proj))
    keys = key(tokens).reshape(*shape, -1, attention.head_dim)
    values = value(tokens).reshape(*shape, -1, attention.value_head_dim)
    return norm_function(attention.k_norm)(keys).transpose(1, 2), values.transpose(1, 2)
