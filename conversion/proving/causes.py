"""Why a file answers otherwise: faults that converters make are made in the model, one by one.

What is named was seen: with this fault the model gives the answers, or has the weights, of the
file.
"""

import math
import re
from collections.abc import Callable, Iterator

import torch
from transformers import PreTrainedConfig

from hf_tformer.model.layer_types import is_by_layer_type

from ..engine.aliases import Batch, Fields, State
from ..engine.errors import ConversionError
from ..engine.models import WRONG_VALUES, LoadedModel
from ..engine.proof import real_logits
from .model import Model

EPSILONS, ACTIVATIONS = (1e-5, 1e-6, 1e-8, 1e-12), ("gelu", "gelu_new", "silu", "relu")
# Values that converters and runtimes take where a file does not say one, by the field.
USUAL: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("final_logit_softcapping", "attn_logit_softcapping"), (None,)),
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"), EPSILONS),
    **dict.fromkeys(("norm_eps", "norm_epsilon"), EPSILONS),
    **dict.fromkeys(("hidden_act", "activation_function", "hidden_activation"), ACTIVATIONS),
    **dict.fromkeys(("embedding_multiplier", "residual_multiplier"), (1.0,)),
    **dict.fromkeys(("logits_scaling", "logit_scale", "scale_embedding"), (1.0,)),
    **dict.fromkeys(("use_parallel_residual", "parallel_attn"), (True, False)),
    "sliding_window": (None,),
    "no_rope_layers": (None,),
    "tie_word_embeddings": (True,),
}
THETAS = (10000.0, 100000.0, 500000.0, 1000000.0)
LESS = 5  # times nearer with a fault than without: then it is the fault
LAYER = re.compile(r"((?:^|\.)(?:layers?|h|block|blocks)\.)(\d+)\.")
Planted = tuple[str, State]


def explain(model: Model, batch: Batch, actual: torch.Tensor, start: LoadedModel) -> str:
    """Return the fault with which a model gives the logits of a file, "" if it is none of these.

    `start` is the model that the file differs from: with its own weights, or with the file's.
    """
    expected = real_logits(start, batch)
    least, found = distance(expected, actual) / LESS, ""
    for said, fields, tensors in faults(model.config, start.model.state_dict()):
        try:
            changed = model.changed(fields, {**start.model.state_dict(), **tensors})
            logits = real_logits(changed, batch)
        except (*WRONG_VALUES, RuntimeError, AttributeError, ConversionError):
            continue  # fields that do not go together
        if (one := distance(logits, actual)) < least:
            least, found = one, said
    return found


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the root of the mean square: one maximum says little where bits are few."""
    return (one.float() - other.float()).square().mean().sqrt().item()


def faults(config: PreTrainedConfig, state: State) -> Iterator[tuple[str, Fields, State]]:
    """Yield faults, each with the fields and the tensors that it changes."""
    for said, fields in changed_settings(config):
        yield said, fields, {}
    for said, tensors in changed_weights(config, state):
        if tensors:
            yield said, {}, tensors


def changed_settings(config: PreTrainedConfig) -> Iterator[tuple[str, Fields]]:
    """Yield fields with the values that converters and runtimes take by default."""
    width = getattr(config, "head_dim", None) or (
        getattr(config, "hidden_size", 0) // getattr(config, "num_attention_heads", 1)
    )
    scales: dict[str, tuple[object, ...]] = {
        "query_pre_attn_scalar": (width,),
        **dict.fromkeys(("attention_scale", "attention_multiplier"), (width**-0.5,)),
    }
    for name, values in {**USUAL, **scales}.items():
        old = getattr(config, name, None)
        for value in () if old is None else values:
            if value != old:
                yield f"{name} is {value} there, and {old} here", {name: value}
    kinds = getattr(config, "layer_types", None) or []
    for kind in sorted({*kinds}) if len({*kinds}) > 1 else ():
        yield f"all layers are {kind} there", {"layer_types": [kind] * len(kinds)}
    yield from changed_rotations(config)


def changed_rotations(config: PreTrainedConfig) -> Iterator[tuple[str, Fields]]:
    rope = getattr(config, "rope_parameters", None) or {}
    by_kind = rope if is_by_layer_type(rope) else {"": rope}
    bases = {*THETAS, *(one["rope_theta"] for one in by_kind.values() if one)}
    for kind, one in by_kind.items() if rope else ():
        where = f" of {kind}" if kind else ""
        part, scaling = one.get("partial_rotary_factor", 1.0), one.get("rope_type", "default")
        others = [
            *(("rope_theta", one["rope_theta"], base) for base in sorted(bases)),
            *(("partial_rotary_factor", part, share) for share in (1.0, 0.5, 0.25)),
            ("rope_type", scaling, "default"),
        ]
        for name, old, value in others:
            if value != old:
                changed = {**one, name: value}
                fields = {**rope, kind: changed} if kind else changed
                yield f"{name}{where} is {value} there, and {old} here", {"rope_parameters": fields}


def changed_weights(config: PreTrainedConfig, state: State) -> Iterator[Planted]:
    """Yield faults of weights, each with the tensors that it changes."""
    for said, change in (
        ("halves of heads stand where pairs belong (rotation order)", in_pairs),
        ("pairs of heads stand where halves belong (rotation order)", in_halves),
    ):
        yield said, turned(config, state, change)
    yield (
        "keys are turned by the number of query heads (rotation order)",
        keys_in_wrong_heads(config, state),
    )
    for said, pattern, alter in SIMPLE:
        fitting = ((name, alter(x)) for name, x in state.items() if re.search(pattern, name))
        yield said, {name: new for name, new in fitting if new is not None}
    yield from exchanged(state, "gate_proj", "up_proj")
    yield from exchanged(state, "q_proj", "k_proj")
    yield from of_embeddings(config, state)
    yield from other_layers(state)


QK = re.compile(r"\b([qk])(?:_proj|_lin)?\.(?:weight|bias)$")


def turned(
    config: PreTrainedConfig, state: State, change: Callable[[torch.Tensor, int], torch.Tensor]
) -> State:
    """Return queries and keys whose rows have another order in each head."""
    heads = getattr(config, "num_attention_heads", 1)
    counts = {"q": heads, "k": getattr(config, "num_key_value_heads", None) or heads}
    changed = {}
    for name, tensor in state.items():
        found = QK.search(name)
        if found and tensor.shape[0] % (2 * counts[found[1]]) == 0:
            changed[name] = change(tensor, counts[found[1]])
    return changed


def keys_in_wrong_heads(config: PreTrainedConfig, state: State) -> State:
    """Return keys that were turned by the number of their heads, and back by that of queries."""
    heads, changed = getattr(config, "num_attention_heads", 1), {}
    for name, tensor in turned(config, state, in_pairs).items():
        found = QK.search(name)
        if found and found[1] == "k" and len(tensor) % (2 * heads) == 0:
            changed[name] = in_halves(tensor, heads)
    return changed


def in_pairs(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Move the halves of each head's rows into pairs."""
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def in_halves(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    return tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def transposed(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.T if tensor.ndim == 2 and tensor.shape[0] == tensor.shape[1] else None


POSITIONS = r"(wpe|pos\w*)\.weight$"
NORMS = r"norm\w*\.weight$|\bln_\w+\.weight$"
SIMPLE: tuple[tuple[str, str, Callable[[torch.Tensor], torch.Tensor | None]], ...] = (
    ("one is added to the weights of norms there", NORMS, lambda x: x + 1),
    ("one is taken from the weights of norms there", NORMS, lambda x: x - 1),
    ("the norms of queries and keys have no weights there", r"[qk]_norm\.weight$", torch.ones_like),
    ("biases are zero there", r"\.bias$", torch.zeros_like),
    ("biases of attention are zero there", r"(attn|attention).*\.bias$", torch.zeros_like),
    ("matrices of attention are transposed there", r"(attn|attention).*\.weight$", transposed),
    ("output projections are transposed there", r"(o_proj|out_proj|dense)\.weight$", transposed),
    ("positions are counted from one there", POSITIONS, lambda x: x.roll(-1, 0)),
    ("positions are counted from minus one there", POSITIONS, lambda x: x.roll(1, 0)),
)


def exchanged(state: State, one: str, other: str) -> Iterator[Planted]:
    pairs = {name: name.replace(one, other) for name in state if one in name}
    fitting = {a: b for a, b in pairs.items() if b in state and state[a].shape == state[b].shape}
    changed = {
        **{a: state[b] for a, b in fitting.items()},
        **{b: state[a] for a, b in fitting.items()},
    }
    yield f"{one} and {other} are exchanged there", changed


def of_embeddings(config: PreTrainedConfig, state: State) -> Iterator[Planted]:
    tables = [
        name
        for name in state
        if re.search(r"(embed_tokens|wte|shared|word_embeddings|embed_in)\.weight$", name)
    ]
    heads = [name for name in state if re.search(r"(lm_head|embed_out)\.weight$", name)]
    if not tables:
        return
    table, root = state[tables[0]], math.sqrt(state[tables[0]].shape[1])
    for head in heads:
        if state[head].shape == table.shape and not torch.equal(state[head], table):
            yield "the head is tied to the embeddings there", {head: table}
    heads_kept = {head: state[head].clone() for head in heads}
    for said, factor in (
        ("are not scaled", 1 / root),
        ("are scaled by the root of the width", root),
    ):
        yield (
            f"embeddings {said} there",
            {**{name: state[name] * factor for name in tables}, **heads_kept},
        )


def other_layers(state: State) -> Iterator[Planted]:
    """Yield two neighbouring layers that are exchanged."""
    layers: dict[str, dict[int, State]] = {}
    for name, tensor in state.items():
        if found := LAYER.search(name):
            stack = layers.setdefault(name[: found.end(1)], {})
            stack.setdefault(int(found[2]), {})[name[found.end() :]] = tensor
    for prefix, stack in layers.items():
        for place, one in stack.items():
            other = stack.get(place + 1, {})
            if shapes_of(one) == shapes_of(other):
                yield (
                    f"layers {place} and {place + 1} are exchanged there",
                    {
                        **{f"{prefix}{place}.{name}": other[name] for name in one},
                        **{f"{prefix}{place + 1}.{name}": one[name] for name in one},
                    },
                )


def shapes_of(state: State) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in state.items()}
