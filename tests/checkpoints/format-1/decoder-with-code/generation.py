# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Texts written greedily, by sampling or by beam search, at the cost of their tokens.

transformers prepares every step as if anything could have changed since the last. On a CPU that is
most of a small model's time. Where nothing but the model takes part, its steps are taken here: what
stays the same is prepared once for the text (steps.py), the layers are those of flat.py, and a text
that has ended costs nothing more. Processors, criteria and streamers are transformers' own.
"""

import torch
from torch import nn
from transformers.generation import GenerationMixin

from .beams import search_beams
from .caching import write_in_place, writes_in_place
from .runs import is_as_written, is_known, is_known_stack, is_plain, runs_flat
from .steps import own_part, pays_to_leave, read_prompt, turns_by_length

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
TOGETHER = 16  # beams at most: with more, to see what others wrote costs more than to move it
# transformers' processors and criteria for which a row is a row, whatever stands beside it.
BY_ROW = (
    "EosTokenCriteria",
    "EpsilonLogitsWarper",
    "EtaLogitsWarper",
    "ExponentialDecayLengthPenalty",
    "ForcedBOSTokenLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor",
    "InfNanRemoveLogitsProcessor",
    "LogitNormalization",
    "MaxLengthCriteria",
    "MaxTimeCriteria",
    "MinLengthLogitsProcessor",
    "MinNewTokensLengthLogitsProcessor",
    "MinPLogitsWarper",
    "NoBadWordsLogitsProcessor",
    "NoRepeatNGramLogitsProcessor",
    "RepetitionPenaltyLogitsProcessor",
    "SequenceBiasLogitsProcessor",
    "StopStringCriteria",
    "SuppressTokensAtBeginLogitsProcessor",
    "SuppressTokensLogitsProcessor",
    "TemperatureLogitsWarper",
    "TopKLogitsWarper",
    "TopPLogitsWarper",
    "TypicalLogitsWarper",
)


class StepwiseGenerationMixin(GenerationMixin):
    """transformers' generate(), with steps of its own where they compute the same."""

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        """Marks a cache that was given, as later versions of transformers do: it is not ours."""
        given = model_kwargs.get("past_key_values")
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        if given is not None:
            given._is_user_defined = True

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
        step, logits = read_prompt(self, input_ids, generation_config, model_kwargs)
        choose = sample if generation_config.do_sample else most_likely
        padding = padding_after_the_end(generation_config, stopping_criteria)
        may_leave = (
            padding is not None
            and not is_user_defined(model_kwargs["past_key_values"])
            and is_every_row_for_itself(self, logits_processor, stopping_criteria)
        )
        unfinished = torch.ones(len(input_ids), dtype=torch.bool, device=input_ids.device)
        rows = unfinished.nonzero().flatten()  # of which the next token is computed
        while True:
            tokens = choose(logits_processor(input_ids, logits.float()))
            if padding is not None:
                tokens = tokens.where(unfinished, padding)
            input_ids = torch.cat((input_ids, tokens[:, None]), dim=-1)
            if streamer is not None:
                streamer.put(tokens)
            unfinished = unfinished & ~stopping_criteria(input_ids, None)
            left = int(unfinished.sum())
            if left == 0:
                break
            if may_leave and pays_to_leave(left, len(rows)):
                step.keep(unfinished[rows].nonzero().flatten())
                rows = unfinished.nonzero().flatten()
            if len(rows) == len(tokens):
                logits = step(tokens)
            else:  # what a row that has ended is given is padding, whatever its logits
                logits[rows] = step(tokens[rows])
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
        if synced_gpus or not can_lay_beams(self, generation_config, model_kwargs):
            return super()._beam_search(
                input_ids,
                logits_processor,
                stopping_criteria,
                generation_config,
                synced_gpus,
                **model_kwargs,
            )
        return search_beams(
            self,
            input_ids,
            logits_processor,
            stopping_criteria,
            generation_config,
            model_kwargs,
            is_every_row_for_itself(self, logits_processor, stopping_criteria),
        )


def can_lay_beams(model, generation_config, model_kwargs):
    """Whether beams can be written side by side in a cache that nobody else will read."""
    return (
        generation_config.num_beams <= TOGETHER
        and not generation_config.do_sample
        and not generation_config.low_memory  # refused by transformers
        and not is_user_defined(model_kwargs.get("past_key_values"))
        and writes_alone(model, generation_config, model_kwargs)
    )


def is_user_defined(cache):
    return getattr(cache, "_is_user_defined", False)


def is_every_row_for_itself(model, processors, criteria):
    """Whether no row's text depends on which others stand beside it."""
    by_row = all(is_by_row(type(watcher)) for watcher in (*processors, *criteria))
    return by_row and not turns_by_length(model.get_decoder())


def is_by_row(kind):
    return kind.__name__ in BY_ROW and kind.__module__.startswith("transformers.generation.")


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
        and reads_what_it_knows(model)
        and runs_flat(model, model.lm_head.weight)
        and will_write_in_place(model_kwargs.get("past_key_values"))
    )


def reads_what_it_knows(model):
    """Whether all that a step reads, or would call, is what it was made to be."""
    stack = model.get_decoder()
    if not all(map(is_known, (model.base_model, stack, model.lm_head))):
        return False
    read = (stack.embed_tokens, stack.embed_norm, stack.dropout)
    called = (model, stack.positions, stack.rotary_emb)
    return all(map(is_known, read)) and all(map(is_plain, called)) and is_known_stack(stack)


def is_as_defined(model):
    """Whether no subclass, wrapper or adapter has put another function in the way of a step."""
    ours = next(c for c in type(model).__mro__ if StepwiseGenerationMixin in c.__bases__)
    steps = ("forward", "prepare_inputs_for_generation", "_update_model_kwargs_for_generation")
    return is_as_written(ours) and all(
        getattr(getattr(model, step), "__func__", None) is getattr(ours, step) for step in steps
    )


def will_write_in_place(cache):
    write_in_place(cache)
    return writes_in_place(own_part(cache))


__all__ = ["StepwiseGenerationMixin"]
