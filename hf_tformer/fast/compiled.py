"""Steps of one text by code that torch's compiler makes: `fast.enable(compiled=True)`.

For a lone token, time goes into reading weights; in a small model, into calls. Inductor makes loops
of all that stands between two looks at other tokens: they read weights nearly twice as fast as the
products of MKL and oneDNN do, and are called once for each layer. With more tokens at a time there
is nothing to gain: for products of matrices they call the same libraries.

    piece    what a token passes between two looks: out of an attention, through an MLP, into the
             next attention. Layers that are built alike share its code, each with its own weights.
"""

import threading
from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from transformers.utils import logging

from ..model.attention import rotate_heads
from ..model.layers import GatedMLP
from ..model.norms import unchanged
from .layers import ADDITIONS, add_pre_norm, layers_of
from .rotations import tables_of

logger = logging.get_logger(__name__)
DTYPES = (torch.float32, torch.bfloat16)  # what generated code is quick in, and was tested with
OF_A_MODULE = vars(nn.Module()).keys()  # and of no interest


class AttentionOutput(NamedTuple):
    output: nn.Linear
    norm: Callable


class Feedforward(NamedTuple):
    """An MLP between its norms; one of them is `unchanged`."""

    norm: Callable
    gate: nn.Linear | None
    up: nn.Linear
    activate: Callable
    down: nn.Linear
    norm_after: Callable


class AttentionInput(NamedTuple):
    """Without keys and values where these are of a source, and known already."""

    norm: Callable
    query: nn.Linear
    query_norm: Callable
    key: nn.Linear | None
    key_norm: Callable
    value: nn.Linear | None
    head_dim: int
    value_head_dim: int


class LogitsHead(NamedTuple):
    norm: Callable
    head: nn.Linear
    scale: float


class Region(NamedTuple):
    leaving: AttentionOutput | None
    inner: Feedforward | None
    onward: AttentionInput | LogitsHead


# What is compiled. It looks at what a piece has while it is traced, not while it runs.


def run_region(total, seen, rotation, piece):
    """The logits at the end of a text; else the hidden states and the heads for the next look."""
    leaving, inner, onward = piece
    if leaving is not None:
        total = call(leaving.norm, total + multiply(leaving.output, seen))
    if inner is not None:
        states = call(inner.norm, total)
        total = call(inner.norm_after, total + through_mlp(inner, states))
    states = call(onward.norm, total)
    if isinstance(onward, LogitsHead):
        return multiply(onward.head, states * onward.scale)
    queries = call(onward.query_norm, multiply(onward.query, states).view(-1, onward.head_dim))
    if onward.key is None:
        return total, queries
    keys = call(onward.key_norm, multiply(onward.key, states).view(-1, onward.head_dim))
    values = multiply(onward.value, states).view(-1, onward.value_head_dim)
    if rotation:
        queries, keys = (rotate_heads(heads, *rotation) for heads in (queries, keys))
    return total, queries, keys, values


def through_mlp(inner, states):
    up = multiply(inner.up, states)
    if inner.gate is None:
        return multiply(inner.down, call(inner.activate, up))
    return multiply(inner.down, call(inner.activate, multiply(inner.gate, states)) * up)


def multiply(linear, vector):
    """By mv() Inductor makes a loop of it, by linear() a call of MKL."""
    product = linear.weight.mv(computed(vector))
    return product if linear.bias is None else product + linear.bias


def computed(vector):
    """The same vector. Inductor stores it here, and does not compute it anew for each row."""
    return vector.as_strided(vector.shape, vector.stride())


def call(part, states):
    return part.forward(states) if isinstance(part, nn.Module) else part(states)


# The functions of a step


def compiled_step(model, position_ids) -> list[Callable] | None:
    """Those of one text, up to its logits; None where torch cannot compile them, which it says.

    `position_ids` are of the next token.
    """
    stack = model.get_decoder()
    if not can_compile(stack, model.lm_head):
        return None
    pieces = regions_of(stack, LogitsHead(stack.norm, model.lm_head, model.logit_scale))
    rotation = rotation_of(stack, position_ids)
    weights = list(map(weights_of, pieces))
    try:
        with COMPILING:
            codes = [code_of(*of_piece, rotation) for of_piece in zip(pieces, weights, strict=True)]
    except Exception as error:  # of any kind; and torch's compiler writes pages
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        logger.warning_once(f"Steps of generation are not compiled, because torch said: {reason}")
        return None
    looks = [look[1:] for layer in layers_of(stack) for look in attentions_of(layer)]
    first = beginning(codes[0], weights[0])
    return [first, *map(going_on, looks, codes[1:], weights[1:])]


def can_compile(stack, head) -> bool:
    parameters = (*stack.parameters(), *head.parameters())
    activations = (layer.mlp.act_fn for layer in layers_of(stack))
    return all(map(is_supported_parameter, parameters)) and all(
        map(is_supported_activation, activations)
    )


def is_supported_parameter(parameter) -> bool:
    """Not what torchao has quantised, which has a kernel: see eight_bits.py."""
    return type(parameter) is nn.Parameter and parameter.dtype in DTYPES


def is_supported_activation(activation) -> bool:
    """Others may do what a graph does not keep, or differ in what description() does not see."""
    return type(activation).__module__.startswith(("torch.nn.", "transformers.activations"))


def beginning(code, weights):
    return lambda hidden_states, run: code(hidden_states, *run.rotation, *weights)


def going_on(look, code, weights):
    attention, is_at_source = look

    def look_and_go_on(states, run):
        total, *heads = states
        attend = run.attend_source if is_at_source else run.attend_rotated
        seen = attend(attention, *heads).flatten()
        return code(total, seen, *run.rotation, *weights)

    return look_and_go_on


def rotation_of(stack, position_ids) -> tuple:
    """Of the next token, as an example: of no other, since some rotations remember how far a text
    has come. Nothing where no heads are turned."""
    blank = stack.embed_tokens.weight.new_zeros(1, 1, stack.config.hidden_size)
    position_embeddings = stack.rotary_emb(blank, position_ids)
    return () if position_embeddings is None else tables_of(position_embeddings)[0]


# Pieces


def regions_of(stack, ending) -> list[Region]:
    """One before each look, and the last one behind all of them."""
    pieces, behind = [], (None, None)
    for layer in layers_of(stack):
        for norm, attention, is_at_source in attentions_of(layer):
            before, after = norms_around(layer, norm)
            pieces.append(Region(*behind, attention_input(before, attention, is_at_source)))
            behind = AttentionOutput(attention.o_proj, after), None
        behind = behind[0], feedforward_of(layer)
    return [*pieces, Region(*behind, ending)]


def attentions_of(layer) -> list[tuple]:
    """(norm, attention, whether it looks at the source) for each of its attentions."""
    looks = [(layer.self_attn_norm, layer.self_attn, False)]
    if hasattr(layer, "cross_attn"):
        looks.append((layer.cross_attn_norm, layer.cross_attn, True))
    return looks


def norms_around(layer, norm):
    """What stands before a branch, and behind the sum."""
    return (norm, unchanged) if ADDITIONS[layer.arrange] is add_pre_norm else (unchanged, norm)


def attention_input(norm, attention, is_at_source) -> AttentionInput:
    query = norm, attention.q_proj, attention.q_norm
    sizes = attention.head_dim, attention.value_head_dim
    if is_at_source:
        return AttentionInput(*query, None, unchanged, None, *sizes)
    return AttentionInput(*query, attention.k_proj, attention.k_norm, attention.v_proj, *sizes)


def feedforward_of(layer) -> Feedforward:
    before, after = norms_around(layer, layer.mlp_norm)
    mlp = layer.mlp
    gate = mlp.gate_proj if isinstance(mlp, GatedMLP) else None
    return Feedforward(before, gate, mlp.up_proj, mlp.act_fn, mlp.down_proj, after)


# Code. A function of torch.compile() takes 25 us to find out that it is called as it was before.
# What Inductor makes of a graph takes 6, and asks nothing: it is found by all that could differ.

CODES: dict[tuple, Callable] = {}  # for as long as the process lives: a few for each architecture
COMPILING = threading.Lock()  # torch is changed while a graph is traced, for all threads


def code_of(piece, weights, rotation) -> Callable:
    """Compiled and run once: so a step begins with all its code, or without any."""
    numbers = list(map(id, weights))
    which_are_one = tuple(map(numbers.index, numbers))
    turns = tuple((table.shape, table.dtype) for table in rotation)
    moment = torch.get_num_threads(), torch.is_inference_mode_enabled()
    key = description(piece), which_are_one, turns, moment
    if key not in CODES:
        onward, leaving = piece.onward, piece.leaving
        total = example_input(onward.head if isinstance(onward, LogitsHead) else onward.query)
        seen = () if leaving is None else (example_input(leaving.output),)
        inputs = total, *seen, *rotation, *weights
        code = new_code(piece, inputs)
        code(*inputs)
        CODES[key] = code
    return CODES[key]


def new_code(piece, inputs) -> Callable:
    # It is traced with a copy of its modules, whose weights are the inputs: others may be using it.
    piece = deepcopy(piece, {id(weight): weight for weight in weights_of(piece)})
    places = weight_slots(piece)

    def pass_flat(total, *rest):
        others, weights = rest[: -len(places)], rest[-len(places) :]
        for (tensors, name), weight in zip(places, weights, strict=True):
            tensors[name] = weight
        seen, rotation = (None, others) if piece.leaving is None else (others[0], others[1:])
        return run_region(total, seen, rotation, piece)

    graph = make_fx(pass_flat)(*inputs)
    # A piece is one kernel, for which threads do not pay; and in a forked server they can hang.
    options = {"compile_threads": 1, "cpp_wrapper": False}
    return torch._inductor.compile(graph, list(inputs), options=options)


def example_input(linear):
    return linear.weight.new_zeros(linear.in_features)


def weights_of(piece) -> list[torch.Tensor]:
    return [tensors[name] for tensors, name in weight_slots(piece)]


def weight_slots(piece) -> list[tuple[dict, str]]:
    """Where each weight of its modules stands, buffers included; twice, if it is of two."""
    fields = [field for part in piece if part is not None for field in part]
    return [
        (tensors, name)
        for part in fields
        if isinstance(part, nn.Module)
        for module in part.modules()
        for tensors in (module._parameters, module._buffers)
        for name, tensor in tensors.items()
        if tensor is not None
    ]


def description(part):
    """Equal for two parts if the same code serves both."""
    if isinstance(part, tuple):
        return type(part), *map(description, part)
    if not isinstance(part, nn.Module):
        return part
    settings = {name: repr(value) for name, value in vars(part).items() if name not in OF_A_MODULE}
    named = (*part.named_parameters(), *part.named_buffers())
    tensors = ((name, tensor.shape, tensor.stride(), tensor.dtype) for name, tensor in named)
    return type(part), tuple(sorted(settings.items())), *tensors
