"""What distances add to the scores of attention, looked up once for a distance, not for each pair.

The place of a key less that of the query decides alone, so the keys that a token sees get a part of
one row, and those of the token before it get the same row without its first number.

All have a first dimension of 1 if the layers share what is added, or else of the number of layers:
layer i finds its own at i modulo that size.
"""

import torch

from . import guards


def of_distances(stack, first: int, last: int):
    """[1 or layers, heads, distances] for all distances from `first` to `last`; None if nothing."""
    if guards.has_no_bias(stack):
        return None
    biases = stack.score_bias.of(torch.arange(first, last + 1)[None])
    different = {id(bias): bias for bias in biases}.values()
    return torch.stack([bias.squeeze(1) for bias in different])


def of_next_token(stack, places: int, dtype):
    """[1 or layers, kv_heads, groups, places]: the last place is that of the token itself."""
    biases = of_distances(stack, 1 - places, 0)
    if biases is None:
        return None
    return biases.to(dtype).unflatten(1, (stack.config.num_key_value_heads, -1))


def of_whole_sequences(stack, length: int, dtype):
    """[1 or layers, 1, heads, query, key]: later keys are hidden where the stack is causal."""
    biases = of_distances(stack, 1 - length, length - 1)
    if biases is None:
        return None
    biases = biases.to(dtype)
    if stack.score_bias.is_causal:
        biases[..., length:] = -torch.inf
    # One window of `length` keys for each query; the last query sees the first window.
    return biases.unfold(-1, length, 1).flip(-2).unsqueeze(1)
