"""Caches of transformers, written in place.

A growing cache copies all keys and values at each step to append one. Here they lie in buffers with
some spare room, and a step writes only its own. The layer of the cache stays transformers' own: its
keys and values are views of the buffers, so other code can update, copy or export it as usual.
"""

import weakref
from dataclasses import fields

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutputWithPast

# What transformers calls a cache: "past_key_values", and from 5.24 on "cache".
CACHE = fields(BaseModelOutputWithPast)[1].name
ROOM = 24  # spare tokens at least, and a sixteenth of the length: little memory beyond what is used

# Keys or values [batch, kv_heads, length, dim], and the buffer at whose start they lie.
Buffered = tuple[Tensor, Tensor]

# Layer of a cache → the keys and the values that append() left there. Only the room behind these is
# ours: other tensors in the layer (cropped, moved, or a snapshot that the caller took) are copied.
LAST_WRITTEN: weakref.WeakKeyDictionary[DynamicLayer, tuple[Buffered, Buffered]] = (
    weakref.WeakKeyDictionary()
)
NOTHING = ((torch.empty(0), torch.empty(0)),) * 2


def append(
    layer: DynamicLayer, keys: Tensor, values: Tensor, room: int = ROOM
) -> tuple[Tensor, Tensor]:
    """Return the same as `layer.update(keys, values)`, without copying the earlier tokens."""
    if type(layer) is not DynamicLayer:  # a sliding layer keeps no more than its window
        return layer.update(keys, values)
    if not layer.is_initialized:
        layer.lazy_initialization(keys, values)
    last_keys, last_values = LAST_WRITTEN.get(layer, NOTHING)
    last_keys = extend(layer.keys, keys, room, *last_keys)
    last_values = extend(layer.values, values, room, *last_values)
    LAST_WRITTEN[layer] = last_keys, last_values
    layer.keys, layer.values = last_keys[0], last_values[0]
    return layer.keys, layer.values


def extend(states: Tensor, new: Tensor, room: int, last: Tensor, buffer: Tensor) -> Buffered:
    """Join `states` and `new` along the length, in the buffer of `last` if that is `states`."""
    length = states.shape[-2] if states.numel() else 0
    total = length + new.shape[-2]
    if states is not last or buffer.shape[-2] < total or is_frozen(buffer):
        buffer = new.new_empty(*new.shape[:2], total + max(room, total // 16), new.shape[-1])
        buffer[..., :length, :] = states if length else 0
    buffer.narrow(-2, length, total - length).copy_(new)
    return buffer.narrow(-2, 0, total), buffer


def is_frozen(states: Tensor) -> bool:
    """Return whether a tensor was made in inference mode and may not be written outside of it."""
    return states.is_inference() and not torch.is_inference_mode_enabled()


def select_sequences(cache: DynamicCache, indices: Tensor) -> None:
    """Keep these sequences of a batch, in this order, and the spare room of our buffers."""
    for layer in cache.layers:
        keys, values = LAST_WRITTEN.get(layer, NOTHING)
        if layer.keys is not keys[0] or layer.values is not values[0]:
            layer.batch_select_indices(indices)
            continue
        keys, values = (select_with_room(*states, indices) for states in (keys, values))
        LAST_WRITTEN[layer] = keys, values
        layer.keys, layer.values = keys[0], values[0]


def select_with_room(states: Tensor, buffer: Tensor, indices: Tensor) -> Buffered:
    """Select from the whole buffer: it is contiguous, which is copied faster."""
    buffer = buffer.index_select(0, indices.to(buffer.device))
    return buffer.narrow(-2, 0, states.shape[-2]), buffer


def self_attention_part(cache: DynamicCache | EncoderDecoderCache) -> DynamicCache:
    """Return the cache of self-attention, one of two in an encoder-decoder."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
