"""Passes through a stack without the calls of its modules.

    NextTokens   one token for each text, beside a cache
    NextBeamTokens  one token for each beam of beam search
    WholeSequences   all tokens of each text, padding left out (whole_sequences.py)

All know how their tokens attend; the rest of a layer is the same (layers.py). What they compute is
what the modules compute, up to rounding; where padding was, WholeSequences leaves zeros.
"""

import weakref

import torch
from torch import nn
from transformers.masking_utils import find_packed_sequence_indices

from ..model.attention import as_additive_mask
from ..model.layer_types import LAYER_TYPES
from ..model.norms import unchanged
from . import biases, guards
from .caches import ROOM, append, select_sequences
from .layers import layers_of, stack_functions
from .rotations import apply_rotation, rotations_of
from .whole_sequences import WholeSequences


class NextTokens:
    """One token for each text.

    `masks` are those of layers that see all and of layers with a window, [texts, 1, 1, keys] in
    sdpa's form, or None where nothing is hidden; `biased` takes their place where distances count:
    the sums of both, one for all layers or one for each.
    """

    def __init__(self, texts, cache, masks=(None, None), source_cache=None, source_mask=None):
        self.texts = texts
        self.rotation = ()  # of one token, or of each: see rotations.py
        self.cache, self.masks, self.biased = cache, masks, None
        self.source_cache, self.source_mask = source_cache, source_mask

    def begin_step(self, rotation, bias=None):
        self.rotation = rotation
        if self.masks[0] is not None:  # a token sees itself
            self.masks = (nn.functional.pad(self.masks[0], (0, 1)),) * 2
        if bias is not None:
            self.add_bias(bias)

    def add_bias(self, bias):
        """What the distance to each place adds: see biases.of_next_token()."""
        bias, mask = bias.unsqueeze(1), self.masks[0]
        self.biased = bias if mask is None else bias + as_additive_mask(mask, bias.dtype)

    def keep(self, texts):
        """Goes on with these texts, in this order."""
        self.texts = len(texts)
        if self.masks[0] is not None:
            self.masks = (self.masks[0][texts],) * 2
        self.keep_past(texts)

    def keep_past(self, texts):
        """A source may be one for all: then it stays."""
        select_sequences(self.cache, texts)
        if self.source_cache is not None and len(self.source_cache.layers[0].keys) > 1:
            select_sequences(self.source_cache, texts)
        if self.source_mask is not None and len(self.source_mask) > 1:
            self.source_mask = self.source_mask[texts]

    def attend(self, attention, queries, keys, values):
        queries, keys = (apply_rotation(states, self.rotation) for states in (queries, keys))
        return self.attend_rotated(attention, queries, keys, values)

    def attend_rotated(self, attention, queries, keys, values):
        """The same, of heads that are rotated."""
        layer = self.cache.layers[attention.layer_idx]
        keys = self.to_be_kept(keys, attention.head_dim)
        values = self.to_be_kept(values, attention.value_head_dim)
        keys, values = self.append(layer, keys, values)
        mask = self.mask_for(attention)
        if mask is not None:
            mask = mask[..., -keys.shape[2] :]  # a layer that slides has let go of the others
        return self.attend_to(attention, queries, keys, values, mask)

    def mask_for(self, attention):
        if self.biased is not None:
            return self.biased[attention.layer_idx % len(self.biased)]
        return self.masks[attention.sliding_window is not None]

    def append(self, layer, keys, values):
        return append(layer, keys, values)

    def to_be_kept(self, states, size):
        """What each text's token adds, [texts, kv_heads, 1, size]."""
        return states.view(self.texts, -1, 1, size)

    def attend_source(self, attention, queries):
        source = self.source_cache.layers[attention.layer_idx]
        return self.attend_to(attention, queries, source.keys, source.values, self.source_mask)

    def attend_to(self, attention, queries, keys, values, mask):
        """Queries that share a key stand beside each other, so nothing is copied for them."""
        groups, size = attention.num_key_value_groups, attention.head_dim
        queries = queries.view(self.texts, -1, groups, size)
        return nn.functional.scaled_dot_product_attention(
            queries, keys, values, mask, scale=attention.scaling
        )


class NextBeamTokens(NextTokens):
    """One token for each beam of a text.

    What beams write lies side by side behind the prompt that they share, [texts, …, prompt + steps
    · beams, …], and all attend to it together; what each of them sees is its own. A beam that goes
    on from another sees what that one saw: nothing else is moved. `texts` counts beams here.
    `places` are those of the keys in their texts: what was written in a step has one.
    """

    def __init__(self, texts, beams, cache, mask, source_cache=None, source_mask=None):
        super().__init__(texts * beams, cache, (None, None), source_cache, source_mask)
        self.beams, keys = beams, cache.layers[0].keys
        prompt = keys.new_zeros(texts, keys.shape[2]) if mask is None else mask.flatten(1)
        self.sees = prompt.repeat_interleave(beams, 0)  # [texts · beams, keys], to be added
        own = keys.new_full((beams, beams), -torch.inf).fill_diagonal_(0)
        self.sees_now = own.repeat(texts, 1)
        self.places = torch.arange(keys.shape[2])

    def begin_step(self, rotation, bias=None):
        self.rotation = rotation
        self.sees = torch.cat((self.sees, self.sees_now), dim=1)
        self.masks = (self.sees.unflatten(0, (-1, 1, self.beams)),) * 2
        if bias is not None:
            self.add_bias(bias)

    def add_bias(self, bias):
        now = self.places.new_full((self.beams,), bias.shape[-1] - 1)
        self.places = torch.cat((self.places, now))
        bias = bias.flatten(1, 2).index_select(-1, self.places)
        self.biased = bias[:, None, :, None] + self.masks[0]

    def follow(self, beams):
        """Each beam goes on from one of the same text."""
        self.sees = self.sees[beams]

    def keep(self, beams):
        self.follow(beams)
        self.texts, self.sees_now = len(beams), self.sees_now[: len(beams)]
        self.keep_past(beams[:: self.beams] // self.beams)

    def append(self, layer, keys, values):
        return append(layer, keys, values, ROOM * self.beams)

    def to_be_kept(self, states, size):
        return states.view(self.texts // self.beams, self.beams, -1, size).transpose(1, 2)

    def attend_to(self, attention, queries, keys, values, mask):
        output = nn.functional.scaled_dot_product_attention(
            queries.unflatten(0, (-1, self.beams)).transpose(1, 2),
            keys,
            values,
            mask,
            scale=attention.scaling,
            enable_gqa=attention.num_key_value_groups > 1,
        )
        return output.transpose(1, 2).flatten(0, 1)


# Stack → (layers, number of tokens), their weights when these functions were made, the functions.
PREPARED = weakref.WeakKeyDictionary()


def functions_of(stack, tokens: int) -> list:
    """The layers as functions, made once for as long as no weight changes."""
    key = (*layers_of(stack), tokens)
    known = PREPARED.get(stack)
    if known is None or known[0] != key or not known[1].are_unchanged():
        weights = guards.Weights((*layers_of(stack), stack.norm))
        PREPARED[stack] = known = key, weights, stack_functions(stack, tokens)
    return known[2]


def run_next_tokens(
    stack, hidden_states, attention_mask, position_embeddings, cache, source=None, source_mask=None
):
    """The last hidden states of [texts, 1, hidden], or None where the modules have to be called."""
    if not (guards.may_skip_modules(stack, hidden_states) and guards.is_growing_cache(cache)):
        return None
    if not (cache.layers and guards.is_supported_stack(stack)):
        return None
    if not (guards.matches_windows(stack, cache) and guards.has_one_rotation(stack)):
        return None
    batch, keys = len(hidden_states), cache.get_seq_length() + 1
    is_possible, mask = guards.visible_keys(attention_mask, (batch, keys))
    if source is not None and is_possible:
        sources = (batch, source.get_seq_length())
        is_possible, source_mask = guards.visible_keys(source_mask, sources)
    if not is_possible:
        return None
    bias = biases.of_next_token(stack, cache.get_seq_length() + 1, hidden_states.dtype)
    run = NextTokens(batch, cache, (mask, mask), source, source_mask)
    if bias is not None:
        run.add_bias(bias)
    if position_embeddings is not None:
        head_dim = stack.config.head_dim
        run.rotation = rotations_of(position_embeddings, run.texts, head_dim)[0]
    shape = hidden_states.shape
    hidden_states = hidden_states.clone()  # someone may be looking at it, and layers add in place
    hidden_states = hidden_states.flatten() if run.texts == 1 else hidden_states[:, 0]
    for function in functions_of(stack, run.texts):
        hidden_states = function(hidden_states, run)
    return hidden_states.view(shape)


def run_whole_sequences(
    stack, hidden_states, attention_mask, packed_position_ids, position_embeddings, cache=None
):
    """Return the last hidden states [batch, length, hidden], or None where modules are needed."""
    shape = hidden_states.shape[:2]
    if not guards.may_skip_modules(stack, hidden_states):
        return None
    is_new = cache is None or (guards.is_growing_cache(cache) and cache.get_seq_length() == 0)
    if not (is_new and guards.is_supported_stack(stack)):
        return None
    is_possible, real = guards.real_tokens(stack, attention_mask, shape)
    # A text that will be continued and ends in padding goes on from there: it has to be computed.
    if not is_possible or (cache is not None and real is not None and not real[:, -1].all()):
        return None
    documents = None
    if attention_mask is None and packed_position_ids is not None:
        documents = find_packed_sequence_indices(packed_position_ids.expand(shape))
    rotations = rotations_by_type(stack, position_embeddings)
    bias = biases.of_whole_sequences(stack, shape[1], hidden_states.dtype)
    run = WholeSequences(shape, real, rotations, documents, cache, bias)
    return run_through(stack, run, hidden_states)


def rotations_by_type(stack, position_embeddings) -> dict:
    """(cos, sin) or None for each layer type; the layers of a type rotate alike."""
    return {
        LAYER_TYPES[layer.self_attn.sliding_window is not None]: getattr(
            layer, "own_rotation", unchanged
        )(position_embeddings)
        for layer in layers_of(stack)
    }


def run_through(stack, run, hidden_states):
    """The last hidden states of whole texts, or None where they are a lone token."""
    tokens = run.take(hidden_states)
    if len(tokens) < 2:  # functions would be made that want a vector
        return None
    if run.places is None:  # taken without a copy; for the reason see run_next_tokens
        tokens = tokens.clone()
    for function in stack_functions(stack, len(tokens)):
        tokens = function(tokens, run)
    return run.put_back(tokens)
