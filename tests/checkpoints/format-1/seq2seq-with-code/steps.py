# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Steps of generation without the calls of modules: what stays the same is prepared once a text."""

import torch
from torch import nn
from transformers.cache_utils import EncoderDecoderCache

from .flat import flatten_linear, flatten_norm
from .positions import LearnedPositions, count_positions, for_all_heads, rotation_matrices
from .runs import NextOfBeams, NextTokens, flat_stack, source_keys_and_values

AHEAD = 16  # steps whose positions are prepared at once
ROTATIONS = 2**22  # numbers at most in what is prepared


class Step:
    """Takes the tokens that were chosen, [rows]; returns the logits [rows, vocab] of the next.

    A row is a text, or a beam of it. Begins where the prompts of the texts have been read.
    """

    def __init__(self, model, cache, model_kwargs, texts, beams=1):
        self.stack = stack = model.get_decoder()
        self.lm_head, self.logit_scale = model.lm_head, model.logit_scale
        self.table, self.scale = stack.embed_tokens.weight, stack.embed_scale
        self.embed_norm = flatten_norm(stack.embed_norm)

        mask, source_mask = model_kwargs.get("attention_mask"), None
        if isinstance(cache, EncoderDecoderCache):
            mask, source_mask = model_kwargs.get("decoder_attention_mask"), mask
        own, source = own_part(cache), getattr(cache, "cross_attention_cache", None)
        past = (own, self.additive(mask), source, self.additive(source_mask))
        self.run = NextTokens(texts, *past) if beams == 1 else NextOfBeams(texts, beams, *past)

        last = model_kwargs.get("position_ids") if source is None else None
        if last is None:
            last = count_positions(mask, 1, own.get_seq_length() - 1, self.table.device)
        last = last[:, -1:]
        self.last = last[:1] if (last == last[0]).all() else last.repeat_interleave(beams, 0)
        largest = ROTATIONS // (len(self.last) * stack.config.head_dim**2)
        self.ahead = max(min(AHEAD, largest), 1) if can_look_ahead(stack) else 1
        self.place, self.offsets = 0, ()  # among the steps whose positions are prepared
        self.flatten()

    def additive(self, padding_mask):
        """[batch, key] → [batch, 1, 1, key], or nothing if nothing is hidden."""
        if padding_mask is None or padding_mask.all():
            return None
        hidden = padding_mask[:, None, None] == 0
        return self.table.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)

    def flatten(self):
        """The fastest function of a weight depends on the number of rows."""
        self.layers = flat_stack(self.stack, self.run.rows)
        self.head = flatten_linear(self.lm_head, self.run.rows)

    def prepare_positions(self):
        """What the next few steps add to their embeddings, and rotate their heads by."""
        self.last = self.last + self.place
        position_ids = self.last + torch.arange(1, self.ahead + 1, device=self.last.device)
        blank = self.table.new_zeros(1, self.ahead, self.table.shape[1])
        self.offsets = self.stack.positions(blank, position_ids).unbind(1)
        tables = for_all_heads(self.stack.rotary_emb(blank, position_ids))
        self.rotations = tables and rotation_matrices(tables, self.stack.config.head_dim)
        self.place = 0

    def keep(self, rows):
        """Goes on with these rows, fewer than there were."""
        self.run.keep(rows)
        if len(self.last) > 1:
            self.last = self.last[rows]
        self.flatten()
        self.offsets = self.offsets[: self.place]  # the others were prepared for other rows

    def __call__(self, tokens):
        if self.place == len(self.offsets):
            self.prepare_positions()
        run, place = self.run, self.place
        run.begin_step(self.rotations and self.rotations[place])
        embedded = nn.functional.embedding(tokens, self.table)
        hidden_states = torch.add(self.offsets[place], embedded, alpha=self.scale)
        hidden_states = self.embed_norm(hidden_states)
        if run.rows == 1:
            hidden_states = hidden_states[0]
        for layer in self.layers:
            hidden_states = layer(hidden_states, run)
        self.place += 1
        return self.head(hidden_states * self.logit_scale).contiguous().view(run.rows, -1)


def pays_to_leave(staying, rows):
    """To let rows go costs a copy of what the others have written: it waits for a quarter."""
    return 4 * staying <= 3 * rows


def can_look_ahead(stack):
    """Whether positions can be prepared that the text may never reach."""
    return not turns_by_length(stack) and not isinstance(stack.positions, LearnedPositions)


def turns_by_length(stack):
    """Whether the longest row of a batch decides how the heads of all are rotated."""
    rope_type = getattr(stack.rotary_emb, "rope_type", "default")
    return "dynamic" in rope_type or rope_type == "longrope"


def own_part(cache):
    """Of a pair of caches, that of the text being written."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache


def read_prompt(model, input_ids, generation_config, model_kwargs, beams=1):
    """The step that comes after it, and the logits of its last token, [texts, vocab]."""
    read_source(model, model_kwargs)
    outputs = model._prefill(input_ids, generation_config, model_kwargs)
    step = Step(model, outputs.past_key_values, model_kwargs, len(input_ids), beams)
    return step, outputs.logits[:, -1].clone()  # the others, if there are any, are let go


def read_source(model, model_kwargs):
    """Its keys and values; then the first step needs no modules either."""
    cache = model_kwargs["past_key_values"]
    if not isinstance(cache, EncoderDecoderCache) or cache.is_updated.get(0):
        return
    states = model_kwargs["encoder_outputs"][0]
    for layer in model.get_decoder().layers_in_use():
        attention = layer.cross_attn
        keys, values = source_keys_and_values(attention, states)
        cache.cross_attention_cache.update(keys, values, attention.layer_idx)
        cache.is_updated[attention.layer_idx] = True


__all__ = ["Step", "own_part", "pays_to_leave", "read_prompt", "turns_by_length"]
