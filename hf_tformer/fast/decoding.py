"""Greedy decoding and sampling whose steps cost little more than their products.

transformers prepares every step as if anything could have changed since the last one. On a CPU this
is most of a small model's time. Where a step depends on nothing but the model and its cache, it is
taken here: what stays the same is prepared once (steps.py), and a finished sequence costs nothing
more. Processors, criteria and streamers are transformers' own.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.generation import (
    BaseStreamer,
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from .caches import CACHE
from .generation_guards import is_user_defined, may_drop_sequences
from .steps import pays_to_drop, prefill


def decode(
    model: PreTrainedModel,
    input_ids: Tensor,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    streamer: BaseStreamer | None = None,
    **model_kwargs: Any,
) -> Tensor:
    """Return the sequences [batch, length] that transformers' `_sample` would return."""
    step, logits = prefill(model, input_ids, generation_config, model_kwargs)
    choose = sample if generation_config.do_sample else most_likely
    padding = padding_after_end(generation_config, criteria)
    may_drop = (
        padding is not None
        and not is_user_defined(model_kwargs[CACHE])
        and may_drop_sequences(model, processors, criteria)
    )
    left = len(input_ids)
    unfinished = torch.ones(left, dtype=torch.bool, device=input_ids.device)
    computed = unfinished.nonzero().flatten()  # sequences whose next token is computed
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
        if may_drop and pays_to_drop(left, len(computed)):
            step.keep(unfinished[computed].nonzero().flatten())
            computed = unfinished.nonzero().flatten()
        if len(computed) == len(tokens):
            logits = step(tokens)
        else:  # a finished sequence gets padding, whatever its logits
            logits[computed] = step(tokens[computed])
    if streamer is not None:
        streamer.end()
    return input_ids


def most_likely(scores: Tensor) -> Tensor:
    """Choose the token with the highest score."""
    return scores.argmax(-1)


def sample(scores: Tensor) -> Tensor:
    """Draw a token from the softmax of the scores."""
    return torch.multinomial(nn.functional.softmax(scores, dim=-1), num_samples=1).squeeze(1)


def padding_after_end(
    generation_config: GenerationConfig, criteria: StoppingCriteriaList
) -> Tensor | None:
    """Return the token after the end of a sequence; None if all sequences end together."""
    can_end = any(hasattr(criterion, "eos_token_id") for criterion in criteria)
    return generation_config._pad_token_tensor if can_end else None
