"""Decoding steps at batch size 1 by code of torch's compiler: `fast.enable(compiled=True)`.

A single-token step spends its time on reading weights, and in a small model on calls. Inductor
makes loops of all that stands between two attentions: they read weights nearly twice as fast as the
products of MKL and oneDNN do, and are called once for each layer. With more tokens at a time there
is nothing to gain: products of matrices call the same libraries.

A *region* is what a token passes between two attentions: the output of the first, an MLP, and the
input of the second. Layers that are built alike share the code of a region, each with its own
weights.
"""

import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import PreTrainedModel
from transformers.utils import logging

from ..model.attention import Attention, rotate_heads
from ..model.layers import GatedMLP, Layer
from ..model.norms import unchanged
from .guards import SUBLAYERS
from .layers import ARRANGEMENTS, layers_of, norms_after, norms_before
from .passes import NextTokens
from .products import TensorFunction
from .rotations import ALIKE, rotation_key, tables_of

logger = logging.get_logger(__name__)
DTYPES = (torch.float32, torch.bfloat16)  # of weights for which generated code is fast and tested
OF_EVERY_MODULE = vars(nn.Module()).keys()  # attributes that say nothing about a module's kind

# A function of a step. Between two attentions it passes on the hidden states and the heads.
StepFunction = Callable[[Any, NextTokens], Any]
RotationTables = tuple[Tensor, ...]  # cosines and signed sines, or nothing
AttentionPart = tuple[TensorFunction, Attention, bool]  # norm, attention, is it cross-attention


class AttentionOutput(NamedTuple):
    """The end of an attention; the norm is `unchanged` in pre-norm layers."""

    projection: nn.Linear
    norm: TensorFunction


class NormedMLP(NamedTuple):
    """An MLP between its norms; one of them is `unchanged`."""

    norm: TensorFunction
    gate: nn.Linear | None
    up: nn.Linear
    activate: TensorFunction
    down: nn.Linear
    norm_after: TensorFunction


class AttentionInput(NamedTuple):
    """The start of an attention; cross-attention has its keys and values in the cache already."""

    norm: TensorFunction
    query: nn.Linear
    query_norm: TensorFunction
    key: nn.Linear | None
    key_norm: TensorFunction
    value: nn.Linear | None
    head_dim: int
    value_head_dim: int


class LogitsHead(NamedTuple):
    norm: TensorFunction
    head: nn.Linear
    scale: float


class Region(NamedTuple):
    """The modules between two attentions, before the first or behind the last."""

    before: AttentionOutput | None
    mlp: NormedMLP | None
    after: AttentionInput | LogitsHead


# Code that is compiled: conditions on the region are decided while it is traced.


def run_region(
    states: Tensor, attended: Tensor | None, rotation: RotationTables, region: Region
) -> Tensor | tuple[Tensor, ...]:
    """Return the hidden states and the heads of the next attention, or at the end the logits."""
    before, mlp, after = region
    if before is not None and attended is not None:
        states = call(before.norm, states + multiply(before.projection, attended))
    if mlp is not None:
        changed = run_mlp(mlp, call(mlp.norm, states))
        states = call(mlp.norm_after, states + changed)
    normed = call(after.norm, states)
    if isinstance(after, LogitsHead):
        return multiply(after.head, normed * after.scale)
    queries = call(after.query_norm, multiply(after.query, normed).view(-1, after.head_dim))
    if after.key is None or after.value is None:
        return states, queries
    keys = call(after.key_norm, multiply(after.key, normed).view(-1, after.head_dim))
    values = multiply(after.value, normed).view(-1, after.value_head_dim)
    if rotation:
        queries, keys = (rotate_heads(heads, *rotation) for heads in (queries, keys))
    return states, queries, keys, values


def run_mlp(mlp: NormedMLP, states: Tensor) -> Tensor:
    """Apply an MLP without its norms."""
    up = multiply(mlp.up, states)
    if mlp.gate is None:
        return multiply(mlp.down, call(mlp.activate, up))
    return multiply(mlp.down, call(mlp.activate, multiply(mlp.gate, states)) * up)


def multiply(linear: nn.Linear, vector: Tensor) -> Tensor:
    """Apply a linear layer by mv(), of which Inductor makes a loop; linear() would call MKL."""
    product = linear.weight.mv(stored(vector))
    return product if linear.bias is None else product + linear.bias


def stored(vector: Tensor) -> Tensor:
    """Return the same vector; Inductor stores it here, and does not compute it for each row."""
    return vector.as_strided(vector.shape, vector.stride())


def call(part: TensorFunction, states: Tensor) -> Tensor:
    """Call a module without its hooks, or a function."""
    return part.forward(states) if isinstance(part, nn.Module) else part(states)


# The functions of a step


def compiled_functions(model: PreTrainedModel, position_ids: Tensor) -> list[StepFunction] | None:
    """Return the functions of a step at batch size 1, up to the logits of the next position.

    Return None where torch cannot compile them, after a warning.
    """
    stack = model.get_decoder()
    is_plain = getattr(model, "softcap", unchanged) is unchanged
    if not (is_plain and can_compile(stack, model.lm_head)):
        return None
    regions = regions_of(stack, LogitsHead(stack.norm, model.lm_head, model.logit_scale))
    rotation = example_rotation(stack, position_ids)
    weights = list(map(weights_of, regions))
    try:
        with COMPILING:
            codes = [code_of(*pair, rotation) for pair in zip(regions, weights, strict=True)]
    except Exception as error:  # of any kind; and torch's compiler writes pages
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        logger.warning_once(f"Steps of generation are not compiled, because torch said: {reason}")
        return None
    attentions = [part for layer in layers_of(stack) for part in attentions_of(layer)]
    first = first_function(codes[0], weights[0])
    return [first, *map(function_of, attentions, codes[1:], weights[1:])]


def can_compile(stack: PreTrainedModel, head: nn.Linear) -> bool:
    """Return whether generated code is tested and fast for a model's weights and activations."""
    parameters = (*stack.parameters(), *head.parameters())
    activations = (layer.mlp.act_fn for layer in layers_of(stack))
    are_plain = all(map(can_compile_weight, parameters))
    are_known = all(map(can_compile_layer, layers_of(stack)))
    return are_plain and are_known and all(map(can_compile_activation, activations))


def can_compile_layer(layer: Layer) -> bool:
    """Return whether a layer adds one branch after the other as it is, and rotates as all do."""
    outputs = (getattr(layer, f"{name}_output", unchanged) for name in SUBLAYERS)
    return (
        ARRANGEMENTS[layer.run_sublayers] in (norms_before, norms_after)
        and all(output is unchanged for output in outputs)
        and rotation_key(layer) == ALIKE
        and not (layer.self_attn.softcap_option or "experts" in layer.mlp._modules)
    )


def can_compile_weight(parameter: Tensor) -> bool:
    """Return whether a weight is a plain one; quantised ones have a kernel of their own."""
    return type(parameter) is nn.Parameter and parameter.dtype in DTYPES


def can_compile_activation(activation: nn.Module) -> bool:
    """Return whether an activation is torch's or transformers' own.

    Others may do what a graph does not keep, or differ in what description() does not cover.
    """
    return type(activation).__module__.startswith(("torch.nn.", "transformers.activations"))


def first_function(code: Callable[..., Any], weights: list[Tensor]) -> StepFunction:
    """Return the region before the first attention as a function of a step."""
    return lambda hidden_states, context: code(hidden_states, *context.rotation[ALIKE], *weights)


def function_of(
    part: AttentionPart, code: Callable[..., Any], weights: list[Tensor]
) -> StepFunction:
    """Return an attention and the region behind it as a function of a step."""
    _, attention, is_cross = part

    def attend_and_run(passed_on: tuple[Tensor, ...], context: NextTokens) -> Any:
        states, *heads = passed_on
        attend = context.attend_source if is_cross else context.attend_rotated
        attended = attend(attention, *heads).flatten()
        return code(states, attended, *context.rotation[ALIKE], *weights)

    return attend_and_run


def example_rotation(stack: PreTrainedModel, position_ids: Tensor) -> RotationTables:
    """Return the rotation of the next token as an example, () where heads are not rotated.

    No other token would do: some rotations remember the largest position that they were asked for.
    """
    blank = stack.embed_tokens.weight.new_zeros(1, 1, stack.config.hidden_size)
    position_embeddings = stack.rotary_emb(blank, position_ids)
    return () if position_embeddings is None else tables_of(position_embeddings)[0]


# Regions


def regions_of(stack: PreTrainedModel, head: LogitsHead) -> list[Region]:
    """Return the region before each attention, and the last one behind all of them."""
    regions: list[Region] = []
    output: AttentionOutput | None = None
    mlp: NormedMLP | None = None
    for layer in layers_of(stack):
        for norm, attention, is_cross in attentions_of(layer):
            before, after = norms_around(layer, norm)
            start = attention_input(before, attention, is_cross)
            regions.append(Region(output, mlp, start))
            output, mlp = AttentionOutput(attention.o_proj, after), None
        mlp = normed_mlp_of(layer)
    return [*regions, Region(output, mlp, head)]


def attentions_of(layer: Layer) -> list[AttentionPart]:
    """Return the attentions of a layer with their norms."""
    attentions: list[AttentionPart] = [(layer.self_attn_norm, layer.self_attn, False)]
    if hasattr(layer, "cross_attn"):
        attentions.append((layer.cross_attn_norm, layer.cross_attn, True))
    return attentions


def norms_around(layer: Layer, norm: TensorFunction) -> tuple[TensorFunction, TensorFunction]:
    """Return the norm before a sub-layer, and the one behind its sum."""
    is_before = ARRANGEMENTS[layer.run_sublayers] is norms_before
    return (norm, unchanged) if is_before else (unchanged, norm)


def attention_input(norm: TensorFunction, attention: Attention, is_cross: bool) -> AttentionInput:
    query = norm, attention.q_proj, attention.q_norm
    sizes = attention.head_dim, attention.value_head_dim
    if is_cross:
        return AttentionInput(*query, None, unchanged, None, *sizes)
    return AttentionInput(*query, attention.k_proj, attention.k_norm, attention.v_proj, *sizes)


def normed_mlp_of(layer: Layer) -> NormedMLP:
    before, after = norms_around(layer, layer.mlp_norm)
    mlp = layer.mlp
    gate = mlp.gate_proj if isinstance(mlp, GatedMLP) else None
    return NormedMLP(before, gate, mlp.up_proj, mlp.act_fn, mlp.down_proj, after)


# Code. A function of torch.compile() takes 25 us to find out that it is called as it was before.
# The result of Inductor takes 6, and checks nothing: its key here holds all that could differ.

CODES: dict[tuple[object, ...], Callable[..., Any]] = {}  # a few for each architecture, kept
COMPILING = threading.Lock()  # torch is changed while a graph is traced, for all threads


def code_of(region: Region, weights: list[Tensor], rotation: RotationTables) -> Callable[..., Any]:
    """Return the code of a region, compiled and run once: a step has all of its code or none."""
    ids = list(map(id, weights))
    shared = tuple(map(ids.index, ids))  # which weights are the same tensor
    tables = tuple((table.shape, table.dtype) for table in rotation)
    state = torch.get_num_threads(), torch.is_inference_mode_enabled()
    key = description(region), shared, tables, state
    if key not in CODES:
        after, before = region.after, region.before
        first = after.head if isinstance(after, LogitsHead) else after.query
        states = first.weight.new_zeros(first.in_features)
        attended = () if before is None else (states.new_zeros(before.projection.in_features),)
        inputs = states, *attended, *rotation, *weights
        code = new_code(region, inputs)
        code(*inputs)
        CODES[key] = code
    return CODES[key]


def new_code(region: Region, inputs: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Compile a region as a function of the states, the rotation and the weights."""
    # A copy is traced, whose weights are the inputs: other threads may be using the model.
    region = deepcopy(region, {id(weight): weight for weight in weights_of(region)})
    slots = weight_slots(region)

    def run(states: Tensor, *rest: Tensor) -> Tensor | tuple[Tensor, ...]:
        others, weights = rest[: -len(slots)], rest[-len(slots) :]
        for (tensors, name), weight in zip(slots, weights, strict=True):
            tensors[name] = weight
        if region.before is None:
            return run_region(states, None, others, region)
        return run_region(states, others[0], others[1:], region)

    graph = make_fx(run)(*inputs)
    # A region is one kernel, for which threads do not pay; and in a forked server they can hang.
    options = {"compile_threads": 1, "cpp_wrapper": False}
    return torch._inductor.compile(graph, list(inputs), options=options)


def weights_of(region: Region) -> list[Tensor]:
    """Return the weights of a region's modules, buffers included."""
    return [tensors[name] for tensors, name in weight_slots(region)]


def weight_slots(region: Region) -> list[tuple[dict[str, Any], str]]:
    """Return the dictionary and the name of each weight; a shared weight is there twice."""
    fields = [field for part in region if part is not None for field in part]
    return [
        (tensors, name)
        for field in fields
        if isinstance(field, nn.Module)
        for module in field.modules()
        for tensors in (module._parameters, module._buffers)
        for name, tensor in tensors.items()
        if tensor is not None
    ]


def description(part: object) -> object:
    """Return a value that is equal for two parts if the same code serves both."""
    if isinstance(part, tuple):
        return type(part), *map(description, part)
    if not isinstance(part, nn.Module):
        return part
    attributes = vars(part).items()
    settings = {name: repr(value) for name, value in attributes if name not in OF_EVERY_MODULE}
    named = (*part.named_parameters(), *part.named_buffers())
    tensors = ((name, tensor.shape, tensor.stride(), tensor.dtype) for name, tensor in named)
    return type(part), tuple(sorted(settings.items())), *tensors
