"""Passes through a stack without the calls of its modules.

    NextTokens   one token for each text, beside a cache
    NextOfBeams  one token for each beam of beam search
    WholeTexts   all tokens of each text, padding left out

All know how their tokens attend; the rest of a layer is the same (layers.py). What they compute is
what the modules compute, up to rounding; where padding was, WholeTexts leaves zeros.
"""

import weakref

import torch
from torch import nn

from . import guards
from .caches import ROOM, append, select_texts
from .layers import stack_functions
from .rotations import rotations_of, turn_heads


class NextTokens:
    """One token for each text.

    `masks` are those of layers that see all and of layers with a window, [texts, 1, 1, keys] in
    sdpa's form, or None where nothing is hidden.
    """

    def __init__(self, texts, cache, masks=(None, None), source_cache=None, source_mask=None):
        self.texts = texts
        self.rotation = None  # of one token, or of each: see rotations.py
        self.cache, self.masks = cache, masks
        self.source_cache, self.source_mask = source_cache, source_mask

    def begin_step(self, rotation):
        self.rotation = rotation
        if self.masks[0] is not None:  # a token sees itself
            self.masks = (nn.functional.pad(self.masks[0], (0, 1)),) * 2

    def keep(self, texts):
        """Goes on with these texts, in this order."""
        self.texts = len(texts)
        if self.masks[0] is not None:
            self.masks = (self.masks[0][texts],) * 2
        self.keep_past(texts)

    def keep_past(self, texts):
        select_texts(self.cache, texts)
        if self.source_cache is not None:
            select_texts(self.source_cache, texts)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[texts]

    def attend(self, attention, queries, keys, values):
        queries, keys = (turn_heads(states, self.rotation) for states in (queries, keys))
        layer = self.cache.layers[attention.layer_idx]
        keys = self.to_be_kept(keys.view(self.texts, -1, attention.head_dim))
        values = self.to_be_kept(values.view(self.texts, -1, attention.value_head_dim))
        keys, values = self.append(layer, keys, values)
        mask = self.masks[attention.sliding_window is not None]
        if mask is not None:
            mask = mask[..., -keys.shape[2] :]  # a layer that slides has let go of the others
        return self.attend_to(attention, queries, keys, values, mask)

    def append(self, layer, keys, values):
        return append(layer, keys, values)

    def to_be_kept(self, states):
        """[texts, kv_heads, …] → [texts, kv_heads, new, …]"""
        return states.unsqueeze(2)

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


class NextOfBeams(NextTokens):
    """One token for each beam of a text.

    What beams write lies side by side behind the prompt that they share, [texts, …, prompt + steps
    · beams, …], and all attend to it together; what each of them sees is its own. A beam that goes
    on from another sees what that one saw: nothing else is moved. `texts` counts beams here.
    """

    def __init__(self, texts, beams, cache, mask, source_cache=None, source_mask=None):
        super().__init__(texts * beams, cache, (None, None), source_cache, source_mask)
        self.beams, keys = beams, cache.layers[0].keys
        prompt = keys.new_zeros(texts, keys.shape[2]) if mask is None else mask.flatten(1)
        self.sees = prompt.repeat_interleave(beams, 0)  # [texts · beams, keys], to be added
        own = keys.new_full((beams, beams), -torch.inf).fill_diagonal_(0)
        self.sees_now = own.repeat(texts, 1)

    def begin_step(self, rotation):
        self.rotation = rotation
        self.sees = torch.cat((self.sees, self.sees_now), dim=1)
        self.masks = (self.sees.unflatten(0, (-1, 1, self.beams)),) * 2

    def follow(self, beams):
        """Each beam goes on from one of the same text."""
        self.sees = self.sees[beams]

    def keep(self, beams):
        self.follow(beams)
        self.texts, self.sees_now = len(beams), self.sees_now[: len(beams)]
        self.keep_past(beams[:: self.beams] // self.beams)

    def append(self, layer, keys, values):
        return append(layer, keys, values, ROOM * self.beams)

    def to_be_kept(self, states):
        return states.unflatten(0, (-1, self.beams)).transpose(1, 2)

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


class WholeTexts:
    """All tokens of each text, [tokens, …] without padding.

    `real` says which of [batch, length] are tokens, None if all are.
    """

    def __init__(self, shape, real, position_embeddings, cache=None):
        self.shape, self.cache = shape, cache
        self.places = None  # of the tokens in what is padded
        self.groups = [tuple(shape)]  # texts of a length that follow each other, and the length
        if real is not None:
            self.places = real.flatten().nonzero().flatten()
            lengths, texts = real.sum(-1).unique_consecutive(return_counts=True)
            pairs = zip(texts.tolist(), lengths.tolist(), strict=True)
            self.groups = [(count, length) for count, length in pairs if length]
        self.cos_sin = position_embeddings and tuple(map(self.take_table, position_embeddings))

    def take_table(self, table):
        """[batch or 1, length, dims] → [tokens, 1, dims]"""
        return self.take(table.expand(*self.shape, -1)).unsqueeze(1)

    def take(self, padded):
        """[batch, length, …] → [tokens, …]"""
        tokens = padded.flatten(0, 1)
        return tokens if self.places is None else tokens.index_select(0, self.places)

    def put_back(self, tokens):
        """[tokens, …] → [batch, length, …], zeros where there is padding"""
        if self.places is not None:
            batch, length = self.shape
            blank = tokens.new_zeros(batch * length, *tokens.shape[1:])
            tokens = blank.index_copy_(0, self.places, tokens)
        return tokens.unflatten(0, self.shape)

    def attend(self, attention, queries, keys, values):
        if self.cos_sin is not None:
            queries, keys = self.rotate(queries), self.rotate(keys)
        if self.cache is not None:
            padded = (self.put_back(states).transpose(1, 2) for states in (keys, values))
            self.cache.update(*padded, attention.layer_idx)
        sizes = [texts * length for texts, length in self.groups]
        parts = zip(self.groups, *(x.split(sizes) for x in (queries, keys, values)), strict=True)
        outputs = [self.attend_within(attention, *part) for part in parts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def rotate(self, states):
        """As attention does, without a copy in which the halves have changed places."""
        cos, sin = self.cos_sin
        half, size = sin.shape[-1] // 2, sin.shape[-1]
        turned = states * nn.functional.pad(cos, (0, states.shape[-1] - size), value=1.0)
        turned[..., :half].addcmul_(states[..., half:size], sin[..., :half], value=-1)
        turned[..., half:size].addcmul_(states[..., :half], sin[..., half:])
        return turned

    def attend_within(self, attention, group, *states):
        queries, keys, values = (x.unflatten(0, group).transpose(1, 2) for x in states)
        slides = attention.sliding_window is not None and group[1] > attention.sliding_window
        output = nn.functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            guards.seen_by_place(attention, group[1]) if slides else None,
            is_causal=attention.is_causal and not slides,
            scale=attention.scaling,
            enable_gqa=attention.num_key_value_groups > 1,
        )
        return output.transpose(1, 2).flatten(0, 1)


# Stack → (layers, number of tokens), their weights when these functions were made, the functions.
PREPARED = weakref.WeakKeyDictionary()


def functions_of(stack, tokens: int) -> list:
    """The layers as functions, made once for as long as no weight changes."""
    key = (*stack.layers_in_use(), tokens)
    known = PREPARED.get(stack)
    if known is None or known[0] != key or not known[1].are_unchanged():
        weights = guards.Weights((*stack.layers_in_use(), stack.norm))
        PREPARED[stack] = known = key, weights, stack_functions(stack, tokens)
    return known[2]


def run_next_tokens(
    stack, hidden_states, masks, position_embeddings, cache, source_cache=None, source_mask=None
):
    """The last hidden states of [texts, 1, hidden], or None where the modules have to be called."""
    if not (guards.may_skip_modules(stack, hidden_states) and guards.grows_plainly(cache)):
        return None
    is_next = guards.is_next_token(hidden_states, (*masks, source_mask))
    if not (is_next and cache.layers and guards.is_known_stack(stack)):
        return None
    run = NextTokens(len(hidden_states), cache, masks, source_cache, source_mask)
    if position_embeddings is not None:
        run.rotation = rotations_of(position_embeddings, stack.config.head_dim)[0]
    shape = hidden_states.shape
    hidden_states = hidden_states.clone()  # someone may be looking at it, and layers add in place
    hidden_states = hidden_states.flatten() if run.texts == 1 else hidden_states[:, 0]
    for function in functions_of(stack, run.texts):
        hidden_states = function(hidden_states, run)
    return hidden_states.view(shape)


def run_whole_texts(stack, hidden_states, masks, position_embeddings, cache=None):
    """The last hidden states of [batch, length, hidden], or None where modules have to be called.

    `masks` are what the modules would be given, by kind of layer.
    """
    batch, length = hidden_states.shape[:2]
    if not guards.may_skip_modules(stack, hidden_states):
        return None
    is_new = cache is None or (guards.grows_plainly(cache) and cache.get_seq_length() == 0)
    if not (is_new and guards.is_known_stack(stack)):
        return None
    is_possible, real = guards.real_tokens(stack, masks, batch, length)
    # A text that will be continued and ends in padding goes on from there: it has to be computed.
    if not is_possible or (cache is not None and real is not None and not real[:, -1].all()):
        return None
    run = WholeTexts((batch, length), real, position_embeddings, cache)
    hidden_states = run.take(hidden_states)
    if len(hidden_states) < 2:  # of a lone one, functions would be made that want a vector
        return None
    if real is None:  # taken without a copy; for the reason see run_next_tokens
        hidden_states = hidden_states.clone()
    for function in stack_functions(stack, len(hidden_states)):
        hidden_states = function(hidden_states, run)
    return run.put_back(hidden_states)
