# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Caches that are written in place.

transformers' growing cache copies all keys and values at each step to append one. Here they lie in
buffers with some room behind them, and a step writes only its own.
"""

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache

ROOM = 24  # tokens at least, and a sixteenth of the length: little memory beyond what is used


class RoomyLayer(DynamicLayer):
    """Keys and values [batch, kv_heads, length, head_dim], each a view of a longer buffer.

    Only what was written last is written on: whatever else stands here (cropped, selected, moved,
    or a snapshot that someone took) may share its buffer with others, and is copied.
    """

    flat_layers = None  # of the model that writes here: see runs.py
    room = ROOM  # more where a step writes more than a token
    written = (None, None)  # the keys and values that stood here after the last step

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "flat_layers"}

    def update(self, key_states, value_states, *args, **kwargs):
        # Graphs and gradients want new tensors.
        if torch.compiler.is_compiling() or torch.is_grad_enabled():
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self.written
        self.keys = append(self.keys, key_states, self.room, self.keys is keys)
        self.values = append(self.values, value_states, self.room, self.values is values)
        self.written = (self.keys, self.values)
        return self.written

    def batch_select_indices(self, indices):
        if self.get_seq_length() > 0:
            keys, values = self.written
            self.keys = select_rows(self.keys, indices, self.keys is keys)
            self.values = select_rows(self.values, indices, self.values is values)
            self.written = (self.keys, self.values)

    def reorder_cache(self, beam_idx):
        self.batch_select_indices(beam_idx)


class SourceLayer(DynamicLayer):
    """Keys and values of the encoder's output, the same for all beams of a row.

    Beams change places within their row, and then nothing has to move.
    """

    def update(self, key_states, value_states, *args, **kwargs):
        self.rows = None
        return super().update(key_states, value_states, *args, **kwargs)

    def reorder_cache(self, beam_idx):
        if self.rows is None or len(self.rows) != len(self.keys):
            self.rows = number_equal_neighbours(self.keys)
        if not torch.equal(self.rows[beam_idx], self.rows):
            super().reorder_cache(beam_idx)
            self.rows = None


def number_equal_neighbours(states):
    """[batch, …] → [batch]: rows that follow each other and are equal get the same number."""
    differs = (states[1:] != states[:-1]).flatten(1).any(1)
    return torch.nn.functional.pad(differs.cumsum(0), (1, 0))


def append(states, new, room, may_write):
    """`states` and `new` along the length: in the buffer of `states`, if it is long enough."""
    length = states.shape[-2] if states.numel() else 0
    total = length + new.shape[-2]
    if not may_write or room_of(states) < total or is_frozen(states):
        grown = new.new_empty(*new.shape[:2], total + max(room, total // 16), new.shape[-1])
        grown[..., :length, :] = states if length else 0
        states = grown
    part(states, length, total).copy_(new)
    return part(states, 0, total)


def is_frozen(states):
    return states.is_inference() and not torch.is_inference_mode_enabled()


def select_rows(states, indices, has_room):
    """With its room: a row that lies in one piece is copied faster."""
    whole = part(states, 0, room_of(states)) if has_room else states
    return whole.index_select(0, indices.to(states.device))[..., : states.shape[-2], :]


def room_of(states):
    """How long `states`, which append wrote, can become where it lies."""
    return states.stride(1) // states.stride(2) if states.numel() else 0


def part(states, start, end):
    """Of the buffer in which `states` lies, from one step to another."""
    batch, heads, _, size = states.shape
    strides = states.stride()
    offset = states.storage_offset() + start * strides[2]
    return states.as_strided((batch, heads, end - start, size), strides, offset)


def write_in_place(cache):
    """Lets a new growing cache write in place; any other is left as it is."""
    if isinstance(cache, EncoderDecoderCache):
        replace_new_layers(cache.self_attention_cache, RoomyLayer)
        replace_new_layers(cache.cross_attention_cache, SourceLayer)
    else:
        replace_new_layers(cache, RoomyLayer)


def writes_in_place(cache):
    """Whether it does, in all layers that it has, or will make where it has none yet."""
    kinds = {type(layer) for layer in cache.layers} if type(cache) is DynamicCache else {None}
    return (kinds or {cache.layer_class_to_replicate}) == {RoomyLayer}


def replace_new_layers(cache, layer_class):
    if type(cache) is not DynamicCache:
        return
    if cache.layer_class_to_replicate is DynamicLayer:  # made without a configuration
        cache.layer_class_to_replicate = layer_class
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer and not layer.is_initialized:
            cache.layers[index] = layer_class()


__all__ = ["ROOM", "RoomyLayer", "SourceLayer", "write_in_place"]
