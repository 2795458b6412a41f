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

# Layer of a cache → the keys and values that append() left there, [batch, kv_heads, length, dim],
# each with the buffer at whose beginning it lies. Only behind these there is room that is ours:
# whatever else stands in the layer (cropped, moved, or a snapshot that someone took) is copied.
LAST_WRITTEN = weakref.WeakKeyDictionary()
NOTHING = (None, None), (None, None)


def append(layer: DynamicLayer, keys, values, room: int = ROOM):
    """What `layer.update(keys, values)` returns, without a copy of what was there."""
    if type(layer) is not DynamicLayer:  # one that slides keeps no more than its window
        return layer.update(keys, values)
    if not layer.is_initialized:
        layer.lazy_initialization(keys, values)
    last_keys, last_values = LAST_WRITTEN.get(layer, NOTHING)
    last_keys = extend(layer.keys, keys, room, *last_keys)
    last_values = extend(layer.values, values, room, *last_values)
    LAST_WRITTEN[layer] = last_keys, last_values
    layer.keys, layer.values = last_keys[0], last_values[0]
    return layer.keys, layer.values


def extend(states, new, room, last, buffer):
    """`states` and `new` along the length, and their buffer: that of `last`, if it is `states`."""
    length = states.shape[-2] if states.numel() else 0
    total = length + new.shape[-2]
    if states is not last or buffer.shape[-2] < total or is_frozen(buffer):
        buffer = new.new_empty(*new.shape[:2], total + max(room, total // 16), new.shape[-1])
        buffer[..., :length, :] = states if length else 0
    buffer.narrow(-2, length, total - length).copy_(new)
    return buffer.narrow(-2, 0, total), buffer


def is_frozen(states):
    return states.is_inference() and not torch.is_inference_mode_enabled()


def select_sequences(cache: DynamicCache, texts) -> None:
    """Keeps these texts of a batch, in this order, and the room behind what is ours."""
    for layer in cache.layers:
        keys, values = LAST_WRITTEN.get(layer, NOTHING)
        if layer.keys is not keys[0] or layer.values is not values[0]:
            layer.batch_select_indices(texts)
            continue
        keys, values = (select_with_room(*states, texts) for states in (keys, values))
        LAST_WRITTEN[layer] = keys, values
        layer.keys, layer.values = keys[0], values[0]


def select_with_room(states, buffer, texts):
    """A buffer lies in one piece, which is copied faster."""
    buffer = buffer.index_select(0, texts.to(buffer.device))
    return buffer.narrow(-2, 0, states.shape[-2]), buffer


def own_part(cache):
    """Of a pair of caches, that of the text being written."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
