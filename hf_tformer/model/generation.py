# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Texts written greedily or by sampling, a token at a time, at the cost of the token.

transformers prepares every step as if anything could have changed since the last. On a CPU that is
most of a small model's time. Where nothing but the model takes part, its steps are taken here: what
stays the same is prepared once for the text, and the layers are those of flat.py. Prompts,
processors, stopping criteria and streamers are transformers' own.
"""

import torch
from torch import nn
from transformers.cache_utils import EncoderDecoderCache
from transformers.generation import GenerationMixin

from .caching import lay_beams_side_by_side, write_in_place, writes_in_place
from .flat import flatten_linear, flatten_norm
from .positions import LearnedPositions, count_positions, for_all_heads, rotation_matrices
from .runs import (
    NextTokens,
    flat_stack,
    is_known,
    is_known_stack,
    is_plain,
    runs_flat,
    source_keys_and_values,
)

# What a model may be given beside its tokens; with anything else, transformers takes the steps.
UNDERSTOOD = (
    "attention_mask",
    "decoder_attention_mask",
    "encoder_outputs",
    "inputs_embeds",
    "logits_to_keep",
    "past_key_values",
    "position_ids",
    "use_cache",
)
AHEAD = 16  # steps whose positions are prepared at once
TOGETHER = 16  # beams at most: with more, to see what others wrote costs more than to move it


class StepwiseGenerationMixin(GenerationMixin):
    """transformers' generate(), with steps of its own where they compute the same."""

    def _sample(
        self,
        input_ids,
        logits_processor,
        stopping_criteria,
        generation_config,
        synced_gpus=False,
        streamer=None,
        **model_kwargs,
    ):
        if synced_gpus or not writes_alone(self, generation_config, model_kwargs):
            return super()._sample(
                input_ids,
                logits_processor,
                stopping_criteria,
                generation_config,
                synced_gpus,
                streamer,
                **model_kwargs,
            )
        read_source(self, model_kwargs)
        outputs = self._prefill(input_ids, generation_config, model_kwargs)
        step = Step(self, outputs.past_key_values, model_kwargs, len(input_ids))
        logits = outputs.logits[:, -1].clone()
        del outputs  # it may hold the logits of a whole prompt
        choose = sample if generation_config.do_sample else most_likely
        padding = padding_after_the_end(generation_config, stopping_criteria)
        unfinished = torch.ones(len(input_ids), dtype=torch.bool)
        while True:
            tokens = choose(logits_processor(input_ids, logits.float()))
            if padding is not None:
                tokens = tokens.where(unfinished, padding)
            input_ids = torch.cat((input_ids, tokens[:, None]), dim=-1)
            if streamer is not None:
                streamer.put(tokens)
            unfinished = unfinished & ~stopping_criteria(input_ids, None)
            if not unfinished.any():
                break
            logits = step(tokens)
        if streamer is not None:
            streamer.end()
        return input_ids

    def _beam_search(
        self,
        input_ids,
        logits_processor,
        stopping_criteria,
        generation_config,
        synced_gpus=False,
        **model_kwargs,
    ):
        beams = generation_config.num_beams
        if input_ids.shape[1] == 1 and can_lay_beams(self, generation_config, model_kwargs):
            depth = len(self.get_decoder().layers_in_use())
            lay_beams_side_by_side(model_kwargs["past_key_values"], beams, depth)
            read_source(self, model_kwargs, beams)
        return super()._beam_search(
            input_ids,
            logits_processor,
            stopping_criteria,
            generation_config,
            synced_gpus,
            **model_kwargs,
        )


def read_source(model, model_kwargs, beams=1):
    """Its keys and values, once for all beams; then the first step needs no modules either."""
    cache = model_kwargs["past_key_values"]
    if not isinstance(cache, EncoderDecoderCache) or cache.is_updated.get(0):
        return
    states = model_kwargs["encoder_outputs"][0][::beams]
    for layer in model.get_decoder().layers_in_use():
        attention = layer.cross_attn
        keys, values = source_keys_and_values(attention, states)
        cache.cross_attention_cache.update(keys, values, attention.layer_idx)
        cache.is_updated[attention.layer_idx] = True


def can_lay_beams(model, generation_config, model_kwargs):
    """Whether all steps can be taken without modules."""
    cache = model_kwargs.get("past_key_values")
    return (
        isinstance(cache, EncoderDecoderCache)
        and cache.get_seq_length() == 0
        and not cache.is_updated.get(0)  # with a source for each beam
        and generation_config.num_beams <= TOGETHER
        and model_kwargs.get("decoder_attention_mask") is None
        and writes_alone(model, generation_config, model_kwargs)
    )


def most_likely(scores):
    return scores.argmax(-1)


def sample(scores):
    return torch.multinomial(nn.functional.softmax(scores, dim=-1), num_samples=1).squeeze(1)


def padding_after_the_end(generation_config, stopping_criteria):
    """What a finished row goes on with, if rows can finish before the others."""
    can_end = any(hasattr(criterion, "eos_token_id") for criterion in stopping_criteria)
    return generation_config._pad_token_tensor if can_end else None


def writes_alone(model, generation_config, model_kwargs):
    """Whether a step is the model's weights, a growing cache, and nothing else."""
    given = {name for name, value in model_kwargs.items() if value is not None}
    return (
        model_kwargs.get("use_cache")
        and not generation_config.return_dict_in_generate
        and not generation_config.is_assistant
        and given.issubset(UNDERSTOOD)
        and is_as_defined(model)
        and runs_flat(model, model.lm_head.weight)
        and reads_what_it_knows(model)
        and will_write_in_place(model_kwargs.get("past_key_values"))
    )


def reads_what_it_knows(model):
    """Whether all that a step reads is what it was made to be."""
    stack = model.get_decoder()
    read = (stack.embed_tokens, stack.embed_norm, stack.dropout, model.lm_head)
    called = (model, stack, stack.positions, stack.rotary_emb)
    return all(map(is_known, read)) and all(map(is_plain, called)) and is_known_stack(stack)


def is_as_defined(model):
    """Whether no subclass, wrapper or adapter has put another function in the way of a step."""
    ours = next(c for c in type(model).__mro__ if StepwiseGenerationMixin in c.__bases__)
    steps = ("forward", "prepare_inputs_for_generation", "_update_model_kwargs_for_generation")
    return all(getattr(getattr(model, s), "__func__", None) is getattr(ours, s) for s in steps)


def will_write_in_place(cache):
    write_in_place(cache)
    return writes_in_place(own_part(cache))


def own_part(cache):
    """Of a pair of caches, that of the text being written."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache


class Step:
    """Takes the tokens that were chosen, [batch]; returns the logits [batch, vocab] of the next."""

    def __init__(self, model, cache, model_kwargs, rows):
        self.stack = stack = model.get_decoder()
        self.table, self.scale = stack.embed_tokens.weight, stack.embed_scale
        self.embed_norm = flatten_norm(stack.embed_norm)
        self.layers = flat_stack(stack, rows)
        self.head, self.logit_scale = flatten_linear(model.lm_head, rows), model.logit_scale

        mask, source_mask = model_kwargs.get("attention_mask"), None
        if isinstance(cache, EncoderDecoderCache):
            mask, source_mask = model_kwargs.get("decoder_attention_mask"), mask
        self.run = NextTokens(
            rows,
            None,
            own_part(cache),
            self.additive(mask),
            getattr(cache, "cross_attention_cache", None),
            self.additive(source_mask),
        )
        position_ids = model_kwargs.get("position_ids")
        if position_ids is None:
            last = own_part(cache).get_seq_length() - 1
            position_ids = count_positions(mask, 1, last, self.table.device)
        self.ahead = AHEAD if can_look_ahead(stack) else 1
        self.prepare_positions_after(position_ids)

    def additive(self, padding_mask):
        """[batch, key] → [batch, 1, 1, key], or nothing if nothing is hidden."""
        if padding_mask is None or padding_mask.all():
            return None
        hidden = padding_mask[:, None, None] == 0
        return self.table.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)

    def prepare_positions_after(self, position_ids):
        """What the next few steps add to their embeddings, and rotate their heads by."""
        position_ids = position_ids[:, -1:] + torch.arange(1, self.ahead + 1)
        blank = self.table.new_zeros(1, self.ahead, self.table.shape[1])
        self.offsets = self.stack.positions(blank, position_ids).unbind(1)
        tables = for_all_heads(self.stack.rotary_emb(blank, position_ids))
        self.rotations = tables and rotation_matrices(tables, self.stack.config.head_dim)
        self.place, self.position_ids = 0, position_ids

    def __call__(self, tokens):
        if self.place == self.ahead:
            self.prepare_positions_after(self.position_ids)
        run, place = self.run, self.place
        run.rotation = None if self.rotations is None else self.rotations[place]
        if run.mask is not None:
            run.mask = nn.functional.pad(run.mask, (0, 1))  # a token sees itself
        embedded = nn.functional.embedding(tokens, self.table)
        hidden_states = torch.add(self.offsets[place], embedded, alpha=self.scale)
        hidden_states = self.embed_norm(hidden_states)
        if run.rows == 1:
            hidden_states = hidden_states[0]
        for layer in self.layers:
            hidden_states = layer(hidden_states, run)
        self.place += 1
        return self.head(hidden_states * self.logit_scale).contiguous().view(run.rows, -1)


def can_look_ahead(stack):
    """Whether positions can be prepared that the text may never reach."""
    rope_type = getattr(stack.rotary_emb, "rope_type", "default")
    changes_with_length = "dynamic" in rope_type or rope_type == "longrope"
    return not changes_with_length and not isinstance(stack.positions, LearnedPositions)


__all__ = ["StepwiseGenerationMixin"]
