"""Caches of transformers, written in place.

A growing cache copies all keys and values at each step to append one. Here they lie in buffers with
some room behind them, and a step writes only its own. The layer of the cache stays transformers'
own: its keys and values are views of what it needs, and whoever else updates, copies or exports it
finds nothing else.
"""

import weakref

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache

ROOM = 24  # tokens at least, and a sixteenth of the length: little memory beyond what is used

# Layer of a cache → the keys and values that append() left there, [batch, kv_heads, length, dim].
# Only behind these there is room that is ours: whatever else stands in the layer (cropped, moved,
# or a snapshot that someone took) may share its buffer with others, and is copied.
LAST_WRITTEN = weakref.WeakKeyDictionary()


def append(layer: DynamicLayer, keys, values, room: int = ROOM):
    """What `layer.update(keys, values)` returns, without a copy of what was there."""
    if type(layer) is not DynamicLayer:  # one that slides keeps no more than its window
        return layer.update(keys, values)
    if not layer.is_initialized:
        layer.lazy_initialization(keys, values)
    last_keys, last_values = LAST_WRITTEN.get(layer, (None, None))
    layer.keys = extend(layer.keys, keys, room, layer.keys is last_keys)
    layer.values = extend(layer.values, values, room, layer.values is last_values)
    LAST_WRITTEN[layer] = layer.keys, layer.values
    return layer.keys, layer.values


def extend(states, new, room, is_ours):
    """`states` and `new` along the length: in the buffer of `states`, if it is long enough."""
    length = states.shape[-2] if states.numel() else 0
    total = length + new.shape[-2]
    if not is_ours or room_of(states) < total or is_frozen(states):
        grown = new.new_empty(*new.shape[:2], total + max(room, total // 16), new.shape[-1])
        grown[..., :length, :] = states if length else 0
        states = grown
    part(states, length, total).copy_(new)
    return part(states, 0, total)


def is_frozen(states):
    return states.is_inference() and not torch.is_inference_mode_enabled()


def select_texts(cache: DynamicCache, texts) -> None:
    """Keeps these texts of a batch, in this order, and the room behind what is ours."""
    for layer in cache.layers:
        keys, values = LAST_WRITTEN.get(layer, (None, None))
        if layer.keys is not keys or layer.values is not values:
            layer.batch_select_indices(texts)
            continue
        layer.keys, layer.values = (select_with_room(x, texts) for x in (keys, values))
        LAST_WRITTEN[layer] = layer.keys, layer.values


def select_with_room(states, texts):
    """A text that lies in one piece is copied faster."""
    whole = part(states, 0, room_of(states))
    return whole.index_select(0, texts.to(states.device))[..., : states.shape[-2], :]


def room_of(states):
    """How long `states`, which extend() wrote, can become where it lies."""
    return states.stride(1) // states.stride(2) if states.numel() else 0


def part(states, start, end):
    """Of the buffer in which `states` lies, from one token to another."""
    batch, heads, _, size = states.shape
    strides = states.stride()
    offset = states.storage_offset() + start * strides[2]
    return states.as_strided((batch, heads, end - start, size), strides, offset)


def own_part(cache):
    """Of a pair of caches, that of the text being written."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
