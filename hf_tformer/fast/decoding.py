"""Texts written greedily or by sampling, at the cost of their tokens.

transformers prepares every step as if anything could have changed since the last. On a CPU that is
most of a small model's time. Where nothing but the model takes part, its steps are taken here: what
stays the same is prepared once for the text (steps.py), and a text that has ended costs nothing
more. Processors, criteria and streamers are transformers' own.
"""

import torch
from torch import nn

from . import guards
from .steps import pays_to_drop, prefill


def decode(
    model, input_ids, processors, criteria, generation_config, streamer=None, **model_kwargs
):
    """What transformers' loop for greedy decoding and sampling returns, [texts, length]."""
    step, logits = prefill(model, input_ids, generation_config, model_kwargs)
    choose = sample if generation_config.do_sample else most_likely
    padding = padding_after_end(generation_config, criteria)
    may_leave = (
        padding is not None
        and not guards.is_user_defined(model_kwargs["past_key_values"])
        and guards.may_drop_sequences(model, processors, criteria)
    )
    left = len(input_ids)
    unfinished = torch.ones(left, dtype=torch.bool, device=input_ids.device)
    computed = unfinished.nonzero().flatten()  # the texts whose next token is computed
    while True:
        tokens = choose(processors(input_ids, logits.float()))
        if padding is not None and left < len(tokens):
            tokens = tokens.where(unfinished, padding)
        input_ids = torch.cat((input_ids, tokens[:, None]), dim=-1)
        if streamer is not None:
            streamer.put(tokens)
        unfinished = unfinished & ~criteria(input_ids, None)
        left = int(unfinished.sum())
        if left == 0:
            break
        if may_leave and pays_to_drop(left, len(computed)):
            step.keep(unfinished[computed].nonzero().flatten())
            computed = unfinished.nonzero().flatten()
        if len(computed) == len(tokens):
            logits = step(tokens)
        else:  # what a text that has ended is given is padding, whatever its logits
            logits[computed] = step(tokens[computed])
    if streamer is not None:
        streamer.end()
    return input_ids


def most_likely(scores):
    return scores.argmax(-1)


def sample(scores):
    return torch.multinomial(nn.functional.softmax(scores, dim=-1), num_samples=1).squeeze(1)


def padding_after_end(generation_config, criteria):
    """What a finished text goes on with, if texts can finish before the others."""
    can_end = any(hasattr(criterion, "eos_token_id") for criterion in criteria)
    return generation_config._pad_token_tensor if can_end else None
