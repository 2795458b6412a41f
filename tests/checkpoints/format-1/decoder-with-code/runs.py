# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Passes through a stack without the calls of its modules, where nothing else takes part.

    NextTokens  one token for each text, beside a cache that is written in place
    NextOfBeams one token for each beam of beam search
    WholeTexts  all tokens of each text, padding left out

All know how their heads attend; the rest of a layer is the same (flat.py). What they compute is
what the modules compute, up to rounding; where padding was, WholeTexts leaves zeros.
"""

import torch
from torch import nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.output_capturing import _active_collector

from .attention import SELF_ATTENTION_ONLY, CrossAttention, SelfAttention, eager_attention
from .caching import ROOM, writes_in_place
from .flat import flatten_layers, flatten_linear, flatten_norm
from .layers import MLP, GatedMLP, RMSNorm, post_norm, pre_norm
from .positions import rotation_matrices

# What may be read here instead of being called, and what calling it did when this was written.
# Beside anything else, be it an adapter that looks like one of these, the modules are called.
KNOWN = {
    kind: kind.forward
    for kind in (
        nn.Linear,
        nn.Embedding,
        nn.Dropout,
        nn.Identity,
        nn.LayerNorm,
        RMSNorm,
        SelfAttention,
        CrossAttention,
        MLP,
        GatedMLP,
    )
}


def known(kind):
    """Adds a layer, or a model made of layers, as it stands."""
    KNOWN[kind] = kind.forward
    return kind


def runs_flat(model, tensor):
    """Whether a pass can be made without modules, with such tensors, here and now."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype in (torch.float32, torch.float64)  # narrower ones need care with sums
        and not (torch.is_grad_enabled() or model.training)
        and not (torch.compiler.is_compiling() or torch.jit.is_tracing())
        and not torch.is_autocast_enabled("cpu")
        and not _active_collector.get()  # nobody wants to see what the modules return
        and not (_global_forward_hooks or _global_forward_pre_hooks)
        and backend_of(model) is sdpa_attention_forward
    )


def backend_of(model):
    return ALL_ATTENTION_FUNCTIONS.get_interface(model.config._attn_implementation, eager_attention)


def is_plain(module):
    """Whether calling it is its class's own forward, as in inference, on its own parameters."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    is_called_plainly = "forward" not in vars(module) and module._compiled_call_impl is None
    tensors = (tensor for tensor in module._parameters.values() if tensor is not None)
    holds_its_weights = all(type(tensor) is nn.Parameter for tensor in tensors)
    is_watched = any(map(is_watching, hooks))
    return is_called_plainly and holds_its_weights and not (is_watched or module.training)


def is_watching(hook):
    """The hooks by which transformers shows attention stay for ever after the first look."""
    return getattr(hook, "__name__", "") != "output_capturing_hook"


def is_as_written(kind):
    """Whether a class is known, and calling it still does what it did then."""
    return KNOWN.get(kind) is kind.forward


def is_known(module):
    return is_as_written(type(module)) and is_plain(module)


def is_known_stack(stack):
    """Whether layers, and the norm behind them, are what they were made to be."""
    layers = stack.layers_in_use()
    return is_known(stack.norm) and all(map(is_known_layer, layers))


def is_known_layer(layer):
    if not is_known(layer) or layer.residual not in (pre_norm, post_norm):
        return False
    parts = (part for name, part in layer.named_modules() if name and not name.endswith(".act_fn"))
    return all(map(is_known, parts)) and is_plain(layer.mlp.act_fn)


class NextTokens:
    """One token for each text, beside a cache that is written in place.

    Masks are [rows, 1, 1, keys] in sdpa's form, or None where nothing is hidden.
    """

    def __init__(self, rows, cache, mask, source_cache=None, source_mask=None):
        self.rows = rows
        self.rotation = None  # of all rows alike [head_dim, head_dim], or of each
        self.cache, self.mask = cache, mask
        self.source_cache, self.source_mask = source_cache, source_mask

    def begin_step(self, rotation):
        self.rotation = rotation
        if self.mask is not None:
            self.mask = nn.functional.pad(self.mask, (0, 1))  # a token sees itself

    def keep(self, rows):
        """Goes on with these rows, in this order."""
        self.rows = len(rows)
        if self.mask is not None:
            self.mask = self.mask[rows]
        self.keep_texts(rows)

    def keep_texts(self, texts):
        self.cache.batch_select_indices(texts)
        if self.source_cache is not None:
            self.source_cache.batch_select_indices(texts)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[texts]

    def attend(self, attention, queries, keys, values):
        if self.rotation is not None:
            queries, keys = queries @ self.rotation, keys @ self.rotation
        layer = self.cache.layers[attention.layer_idx]
        keys = self.to_be_kept(keys.view(self.rows, -1, attention.head_dim))
        values = self.to_be_kept(values.view(self.rows, -1, attention.value_head_dim))
        return self.attend_to(attention, queries, *layer.update(keys, values), self.mask)

    def to_be_kept(self, states):
        """[rows, kv_heads, …] → [texts, kv_heads, new, …]"""
        return states.unsqueeze(2)

    def attend_source(self, attention, queries):
        source = self.source_cache.layers[attention.layer_idx]
        return self.attend_to(attention, queries, source.keys, source.values, self.source_mask)

    def attend_to(self, attention, queries, keys, values, mask):
        """Queries that share a key stand in a row, so nothing is copied for them."""
        groups, size = attention.num_key_value_groups, attention.head_dim
        queries = queries.view(self.rows, -1, groups, size)
        return nn.functional.scaled_dot_product_attention(
            queries, keys, values, mask, scale=attention.scaling
        )


class NextOfBeams(NextTokens):
    """One token for each beam of a text.

    What beams write lies side by side behind the prompt that they share, [texts, …, prompt + steps
    · beams, …], and all attend to it together; what each of them sees is its own. A beam that goes
    on from another sees what that one saw: nothing else is moved.
    """

    def __init__(self, texts, beams, cache, mask, source_cache=None, source_mask=None):
        super().__init__(texts * beams, cache, None, source_cache, source_mask)
        self.beams, keys = beams, cache.layers[0].keys
        prompt = keys.new_zeros(texts, keys.shape[2]) if mask is None else mask.flatten(1)
        self.sees = prompt.repeat_interleave(beams, 0)  # [rows, keys], to be added
        own = keys.new_full((beams, beams), -torch.inf).fill_diagonal_(0)
        self.sees_now = own.repeat(texts, 1)
        for layer in cache.layers:
            layer.room = ROOM * beams

    def begin_step(self, rotation):
        self.rotation = rotation
        self.sees = torch.cat((self.sees, self.sees_now), dim=1)
        self.mask = self.sees.unflatten(0, (-1, 1, self.beams))

    def follow(self, rows):
        """Each row goes on from one of the same text."""
        self.sees = self.sees[rows]

    def keep(self, rows):
        self.follow(rows)
        self.rows, self.sees_now = len(rows), self.sees_now[: len(rows)]
        self.keep_texts(rows[:: self.beams] // self.beams)

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
    """All tokens of each text, [tokens, …] without padding."""

    def __init__(self, shape, padding_mask, tables, cache=None):
        self.shape, self.cache = shape, cache  # [batch, length] with padding
        self.real = None  # where the tokens lie in what is padded
        self.groups = [tuple(shape)]  # texts of a length that follow each other, and the length
        if padding_mask is not None and not padding_mask.all():
            self.real = padding_mask.flatten().nonzero().flatten()
            lengths, texts = padding_mask.sum(-1).unique_consecutive(return_counts=True)
            pairs = zip(texts.tolist(), lengths.tolist(), strict=True)
            self.groups = [(count, length) for count, length in pairs if length]
        self.tables = tables and tuple(self.take_tables(table) for table in tables)

    def take_tables(self, table):
        """[batch or 1, 1, length, dims] → [tokens, 1, dims]"""
        return self.take(table[:, 0].expand(*self.shape, -1)).unsqueeze(1)

    def take(self, padded):
        """[batch, length, …] → [tokens, …]"""
        flat = padded.flatten(0, 1)
        return flat if self.real is None else flat.index_select(0, self.real)

    def put_back(self, tokens):
        """[tokens, …] → [batch, length, …], zeros where there is padding"""
        if self.real is not None:
            batch, length = self.shape
            blank = tokens.new_zeros(batch * length, *tokens.shape[1:])
            tokens = blank.index_copy_(0, self.real, tokens)
        return tokens.unflatten(0, self.shape)

    def attend(self, attention, queries, keys, values):
        if self.tables is not None:
            queries, keys = self.rotate(queries), self.rotate(keys)
        if self.cache is not None:
            padded = (self.put_back(states).transpose(1, 2) for states in (keys, values))
            self.cache.update(*padded, attention.layer_idx)
        sizes = [rows * length for rows, length in self.groups]
        parts = zip(self.groups, *(x.split(sizes) for x in (queries, keys, values)), strict=True)
        outputs = [self.attend_within(attention, *part) for part in parts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def rotate(self, states):
        """As positions.rotate does, without a copy in which the halves have changed places."""
        cos, sin = self.tables
        half, size = sin.shape[-1] // 2, sin.shape[-1]
        turned = states * nn.functional.pad(cos, (0, states.shape[-1] - size), value=1.0)
        turned[..., :half].addcmul_(states[..., half:size], sin[..., :half])
        turned[..., half:size].addcmul_(states[..., :half], sin[..., half:])
        return turned

    def attend_within(self, attention, group, *states):
        queries, keys, values = (x.unflatten(0, group).transpose(1, 2) for x in states)
        output = nn.functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            is_causal=attention.is_causal,
            scale=attention.scaling,
            enable_gqa=attention.num_key_value_groups > 1,
        )
        return output.transpose(1, 2).flatten(0, 1)


def source_keys_and_values(attention, states):
    """[batch, source, hidden] → keys and values, [batch, kv_heads, source, …]"""
    shape, tokens = states.shape[:2], states.flatten(0, 1)
    rows = max(len(tokens), 2)  # of one, functions would be made that want a vector
    key, value = (flatten_linear(p, rows) for p in (attention.k_proj, attention.v_proj))
    keys = key(tokens).reshape(*shape, -1, attention.head_dim)
    values = value(tokens).reshape(*shape, -1, attention.value_head_dim)
    return flatten_norm(attention.k_norm)(keys).transpose(1, 2), values.transpose(1, 2)


def steers_attention(options):
    """Whether the caller tells attention what only a backend that is called could heed."""
    return any(options.get(name) is not None for name in SELF_ATTENTION_ONLY)


def run_next_tokens(stack, hidden_states, tables, cache, mask, source_cache=None, source_mask=None):
    """The last hidden states of [rows, 1, hidden], or None where the modules have to be called."""
    has_past = writes_in_place(cache) and cache.layers
    if not (has_past and runs_flat(stack, hidden_states)):
        return None
    if not (is_next_token(hidden_states, (mask, source_mask)) and is_known_stack(stack)):
        return None
    run = NextTokens(len(hidden_states), cache, mask, source_cache, source_mask)
    run.rotation = tables and rotation_matrices(tables, stack.config.head_dim)[0]
    shape = hidden_states.shape
    hidden_states = hidden_states.clone()  # someone may be looking at it, and layers add in place
    hidden_states = hidden_states.flatten() if run.rows == 1 else hidden_states[:, 0]
    for step in steps_of_text(stack, cache.layers[0], run.rows):
        hidden_states = step(hidden_states, run)
    return hidden_states.view(shape)


def is_next_token(hidden_states, masks):
    single = (1, 1)  # for all heads, of one query
    return hidden_states.shape[1] == 1 and all(m is None or m.shape[1:3] == single for m in masks)


def steps_of_text(stack, keeper, rows):
    """The layers as functions, made once for each cache, which is once for each text."""
    key = (*stack.layers_in_use(), rows)
    if keeper.flat_layers is None or keeper.flat_layers[0] != key:
        keeper.flat_layers = key, flat_stack(stack, rows)
    return keeper.flat_layers[1]


def flat_stack(stack, rows):
    """Layers and the norm behind them, each to be called with hidden states and a run."""
    norm = flatten_norm(stack.norm)
    return [
        *flatten_layers(stack.layers_in_use(), rows),
        lambda hidden_states, run: norm(hidden_states),
    ]


def run_whole_texts(stack, hidden_states, tables, padding_mask, mask, cache=None):
    """The last hidden states of [batch, length, hidden], or None where modules have to be called.

    `mask` is what the modules would be given: something else than padding may hide in it.
    """
    shape = hidden_states.shape[:2]
    is_padded = isinstance(padding_mask, torch.Tensor) and padding_mask.shape == shape
    hides_padding = mask is None or is_padded
    is_new = cache is None or (writes_in_place(cache) and cache.get_seq_length() == 0)
    is_possible = hides_padding and is_new and runs_flat(stack, hidden_states)
    if not (is_possible and is_known_stack(stack)):
        return None
    if is_padded and ends_in_padding(stack, padding_mask):
        return None
    run = WholeTexts(shape, padding_mask.bool() if is_padded else None, tables, cache)
    hidden_states = run.take(hidden_states)
    if len(hidden_states) < 2:  # of one, functions would be made that want a vector
        return None
    if run.real is None:  # taken without a copy; for the reason see run_next_tokens
        hidden_states = hidden_states.clone()
    for step in flat_stack(stack, len(hidden_states)):
        hidden_states = step(hidden_states, run)
    return run.put_back(hidden_states)


def ends_in_padding(stack, padding_mask):
    """Whether a text that would be continued ends in padding: what is written there is read."""
    is_continued = any(layer.self_attn.is_causal for layer in stack.layers_in_use())
    return is_continued and not padding_mask[:, -1].all()


__all__ = [
    "NextTokens",
    "WholeTexts",
    "known",
    "run_next_tokens",
    "run_whole_texts",
    "steers_attention",
]
