"""Passes through a stack without calling its modules.

    NextTokens      one token of each sequence, beside a cache
    NextBeamTokens  one token of each beam of a beam search
    WholeSequences  all tokens of each sequence, without padding (whole_sequences.py)

Each class defines how its tokens attend; the rest of a layer is the same for all (layers.py). A
pass computes what the modules compute, up to rounding; WholeSequences returns zeros for padding.
"""

import weakref
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.masking_utils import find_packed_sequence_indices

from ..model.attention import Attention, as_additive_mask
from . import biases, guards
from .caches import ROOM, append, select_sequences
from .layers import AttentionContext, LayerFunction, Mask, layers_of, stack_functions
from .rotations import (
    ALIKE,
    PositionEmbeddings,
    Rotation,
    apply_rotation,
    by_key,
    rotations_by_key,
    rotations_of,
)
from .threads import pace_of, run_paced
from .whole_sequences import WholeSequences, attend


class NextTokens(AttentionContext):
    """One token of each sequence.

    `mask` is [sequences, 1, 1, keys] in sdpa's format, None where nothing is hidden. `biased` takes
    its place in models with attention biases: the sums of both, one for all layers or one for each.
    """

    def __init__(
        self,
        sequences: int,
        cache: DynamicCache,
        mask: Mask = None,
        source_cache: DynamicCache | None = None,
        source_mask: Mask = None,
    ):
        self.sequences = sequences
        self.rotation: dict[str | None, Rotation] = {ALIKE: ()}
        self.cache, self.mask = cache, mask
        self.biased: Tensor | None = None
        self.source_cache: Any = source_cache  # None without an encoder
        self.source_mask = source_mask

    def begin_step(self, rotation: dict[str | None, Rotation], bias: Tensor | None = None) -> None:
        """Set what the next tokens are rotated by and biased with, and show them their own keys."""
        self.rotation = rotation
        if self.mask is not None:
            self.mask = nn.functional.pad(self.mask, (0, 1))
        if bias is not None:
            self.add_bias(bias)

    def add_bias(self, bias: Tensor) -> None:
        """Add the biases of biases.of_next_token() to the mask."""
        bias = bias.unsqueeze(1)
        mask = self.mask
        self.biased = bias if mask is None else bias + as_additive_mask(mask, bias.dtype)

    def keep(self, indices: Tensor) -> None:
        """Go on with these sequences, in this order."""
        self.sequences = len(indices)
        if self.mask is not None:
            self.mask = self.mask[indices]
        self.keep_past(indices)

    def keep_past(self, indices: Tensor) -> None:
        """Select sequences of the caches; a source that all share stays."""
        select_sequences(self.cache, indices)
        if self.source_cache is not None and len(self.source_cache.layers[0].keys) > 1:
            select_sequences(self.source_cache, indices)
        if self.source_mask is not None and len(self.source_mask) > 1:
            self.source_mask = self.source_mask[indices]

    def attend(self, attention: Attention, rotation_key: str | None, *heads: Tensor) -> Tensor:
        """Rotate the heads, append to the cache, and attend to all of it."""
        queries, keys, values = heads
        rotation = self.rotation[rotation_key]
        queries, keys = (apply_rotation(states, rotation) for states in (queries, keys))
        return self.attend_rotated(attention, queries, keys, values)

    def attend_rotated(
        self, attention: Attention, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        """Append heads that are rotated to the cache, and attend to all of it."""
        keys = self.to_be_kept(keys, attention.head_dim)
        values = self.to_be_kept(values, attention.value_head_dim)
        keys, values = self.append(attention.layer_idx, keys, values)
        mask = self.mask_of(attention, keys.shape[2])
        return self.attend_to(attention, queries, keys, values, mask)

    def mask_of(self, attention: Attention, keys: int) -> Mask:
        """Return what hides or biases the keys of a layer, which may have dropped the oldest."""
        mask = self.mask
        if self.biased is not None:
            mask = self.biased[attention.layer_idx % len(self.biased)]
        return None if mask is None else mask[..., -keys:]

    def append(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append to a layer of the cache, and return all that it holds."""
        return append(self.cache.layers[index], keys, values)

    def to_be_kept(self, states: Tensor, size: int) -> Tensor:
        """Return heads in the shape of the cache, [sequences, kv_heads, 1, size]."""
        return states.view(self.sequences, -1, 1, size)

    def attend_source(self, attention: Attention, queries: Tensor) -> Tensor:
        """Attend to the cached keys and values of the source."""
        source = self.source_cache.layers[attention.layer_idx]
        return self.attend_to(attention, queries, source.keys, source.values, self.source_mask)

    def attend_to(
        self, attention: Attention, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask
    ) -> Tensor:
        """Call torch's attention; queries that share a key are stacked, so no key is copied."""
        groups, size = attention.num_key_value_groups, attention.head_dim
        queries = queries.view(self.sequences, -1, groups, size)
        return attend(attention, queries, keys, values, mask)


class NextBeamTokens(NextTokens):
    """One token of each beam of each example.

    The keys of beams lie side by side behind the prompt that they share, [examples, …, prompt +
    steps · beams, …]. All beams attend to all of them in one call, and a mask hides those of the
    others. A beam that continues another one takes over its mask: nothing else is moved.
    `sequences` counts beams here. `positions` are those of the keys: all keys of a step have one.
    Layers with a window keep old keys for some time, hidden by `old`.
    """

    mask: Tensor

    def __init__(
        self,
        examples: int,
        beams: int,
        cache: DynamicCache,
        mask: Mask,
        source_cache: DynamicCache | None = None,
        source_mask: Mask = None,
    ):
        super().__init__(examples * beams, cache, None, source_cache, source_mask)
        self.beams, keys, length = beams, cache.layers[0].keys, cache.get_seq_length()
        prompt = keys.new_zeros(examples, length) if mask is None else mask.flatten(1)
        self.past_mask = prompt.repeat_interleave(beams, 0)  # [examples · beams, keys], additive
        own = keys.new_full((beams, beams), -torch.inf).fill_diagonal_(0)
        self.own_mask = own.repeat(examples, 1)  # of the keys of one step
        self.positions = torch.arange(length)
        self.windows = {  # of the layers that have one
            index: layer.sliding_window
            for index, layer in enumerate(cache.layers)
            if isinstance(layer, DynamicSlidingWindowLayer)
        }
        for index in self.windows:
            cache.layers[index] = keeping_all(cache.layers[index])
        self.old: dict[int, Tensor] = {}  # window → which keys are no longer in it

    def begin_step(self, rotation: dict[str | None, Rotation], bias: Tensor | None = None) -> None:
        """Set what the next tokens are rotated by and biased with, and show each its own key."""
        self.rotation = rotation
        self.past_mask = torch.cat((self.past_mask, self.own_mask), dim=1)
        self.mask = self.past_mask.unflatten(0, (-1, 1, self.beams))
        now = self.positions[-1:] + 1
        self.positions = torch.cat((self.positions, now.expand(self.beams)))
        self.old = {size: self.positions <= now - size for size in {*self.windows.values()}}
        if bias is not None:
            self.add_bias(bias)

    def add_bias(self, bias: Tensor) -> None:
        """Add the biases of biases.of_next_token() to the mask, by the position of each key."""
        bias = bias.flatten(1, 2).index_select(-1, self.positions)
        self.biased = bias[:, None, :, None] + self.mask

    def follow(self, origins: Tensor) -> None:
        """Let each beam continue one of the same example, at the index `origins`."""
        self.past_mask = self.past_mask[origins]

    def keep(self, indices: Tensor) -> None:
        """Go on with these beams, all of each example that is kept."""
        self.follow(indices)
        self.sequences, self.own_mask = len(indices), self.own_mask[: len(indices)]
        self.keep_past(indices[:: self.beams] // self.beams)

    def append(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of all beams to a layer of the cache."""
        layer, window = self.cache.layers[index], self.windows.get(index)
        if window is not None and layer.keys.shape[2] > 2 * window * self.beams:
            most = window * self.beams  # what no window holds any more is dropped now and then
            layer.keys, layer.values = layer.keys[:, :, -most:], layer.values[:, :, -most:]
        return append(layer, keys, values, ROOM * self.beams)

    def mask_of(self, attention: Attention, keys: int) -> Mask:
        """Return what hides or biases the keys of a layer, those behind its window included."""
        mask = super().mask_of(attention, keys)
        window = self.windows.get(attention.layer_idx)
        if mask is None or window is None:
            return mask
        return mask.masked_fill(self.old[window][-keys:], -torch.inf)

    def to_be_kept(self, states: Tensor, size: int) -> Tensor:
        """Return heads in the shape of the cache, [examples, kv_heads, beams, size]."""
        return states.view(self.sequences // self.beams, self.beams, -1, size).transpose(1, 2)

    def attend_to(
        self, attention: Attention, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask
    ) -> Tensor:
        """Call torch's attention for all beams of an example together."""
        queries = queries.unflatten(0, (-1, self.beams)).transpose(1, 2)
        return attend(attention, queries, keys, values, mask).transpose(1, 2).flatten(0, 1)


def keeping_all(layer: DynamicSlidingWindowLayer) -> DynamicLayer:
    """Return a layer of a cache that holds the same and drops nothing by itself."""
    kept = DynamicLayer()
    kept.lazy_initialization(layer.keys, layer.values)
    kept.keys, kept.values = layer.keys, layer.values
    return kept


# Stack → its parts, their weights when the functions were made, these by (tokens, threads).
ByNumbers = dict[tuple[int, int], list[LayerFunction]]
Prepared = tuple[tuple[object, ...], guards.WeightSnapshot, ByNumbers]
PREPARED: weakref.WeakKeyDictionary[PreTrainedModel, Prepared] = weakref.WeakKeyDictionary()
MOST_PREPARED = 16  # of these numbers for which functions are kept


def functions_of(stack: PreTrainedModel, tokens: int) -> list[LayerFunction]:
    """Return the layers as functions, made once for as long as no weight changes."""
    layers = tuple(layers_of(stack))
    parts = (*layers, *(type(layer.mlp.act_fn).forward for layer in layers))  # may be patched
    prepared = PREPARED.get(stack)
    if prepared is None or prepared[0] != parts or not prepared[1].is_current():
        weights = guards.WeightSnapshot((*layers, stack.norm))
        PREPARED[stack] = prepared = parts, weights, {}
    functions, key = prepared[2], (tokens, torch.get_num_threads())
    if key not in functions:
        if len(functions) == MOST_PREPARED:
            functions.clear()
        functions[key] = stack_functions(stack, tokens)
    return functions[key]


def run_next_tokens(
    stack: PreTrainedModel,
    hidden_states: Tensor,
    attention_mask: Any,
    position_embeddings: PositionEmbeddings | None,
    cache: DynamicCache,
    source: DynamicCache | None = None,
    source_mask: Mask = None,
) -> Tensor | None:
    """Return the last hidden states [sequences, 1, hidden], or None where modules are needed."""
    if not guards.may_step(stack, hidden_states, cache):
        return None
    batch, keys = len(hidden_states), cache.get_seq_length() + 1
    is_possible, mask = guards.visible_keys(attention_mask, (batch, keys))
    if source is not None and is_possible:
        shape = (batch, source.get_seq_length())
        is_possible, source_mask = guards.visible_keys(source_mask, shape)
    if not is_possible:
        return None
    context = NextTokens(batch, cache, mask, source, source_mask)
    bias = biases.of_next_token(stack, keys, hidden_states.dtype)
    if bias is not None:
        context.add_bias(bias)
    rotate = partial(rotations_of, sequences=batch, head_dim=stack.config.head_dim)
    [context.rotation] = rotations_by_key(position_embeddings, rotate, 1)
    states = hidden_states.clone()  # a hook may hold the original, and layers add in place
    states = states.flatten() if batch == 1 else states[:, 0]
    run = partial(run_layers, states=states, context=context)
    states = run_paced(pace_of(stack, batch), partial(functions_of, stack, batch), run)
    return states.view(hidden_states.shape)


def run_layers(functions: list[LayerFunction], states: Tensor, context: AttentionContext) -> Tensor:
    for function in functions:
        states = function(states, context)
    return states


def run_whole_sequences(
    stack: PreTrainedModel,
    hidden_states: Tensor,
    attention_mask: Any,
    packed_position_ids: Tensor | None,
    position_embeddings: Any,
    cache: DynamicCache | None = None,
) -> Tensor | None:
    """Return the last hidden states [batch, length, hidden], or None where modules are needed."""
    shape = hidden_states.shape[:2]
    if not guards.may_read_whole(stack, hidden_states, cache):
        return None
    if cache is not None and cache.get_seq_length() > 0:
        is_possible, real = guards.shows_all(attention_mask), None
    else:
        is_possible, real = guards.real_tokens(stack, attention_mask, shape)
    # A sequence that ends in padding is continued from there, so the padding has to be computed.
    if not is_possible or (cache is not None and real is not None and not real[:, -1].all()):
        return None
    documents = None
    if attention_mask is None and packed_position_ids is not None:
        documents = find_packed_sequence_indices(packed_position_ids.expand(shape))
    bias = biases.of_whole_sequences(stack, shape[1], hidden_states.dtype)
    context = WholeSequences(shape, real, by_key(position_embeddings), documents, cache, bias)
    return apply_layers(stack, context, hidden_states)


def apply_layers(
    stack: PreTrainedModel, context: WholeSequences, hidden_states: Tensor
) -> Tensor | None:
    """Return the last hidden states of whole sequences, or None for a single token."""
    tokens = context.take(hidden_states)
    if len(tokens) < 2:  # the functions would take a vector
        return None
    if context.indices is None:  # taken without a copy; for the reason see run_next_tokens
        tokens = tokens.clone()
    return context.put_back(run_layers(functions_of(stack, len(tokens)), tokens, context))
