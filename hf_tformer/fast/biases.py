"""Attention biases, looked up once for each distance instead of once for each pair of tokens.

A bias depends only on the position of a key minus that of the query. So the biases of all keys of a
query are a slice of one row, and those of the query before it are the same row shifted by one.

The first dimension of each table is 1 if all layers share their biases, else the number of layers:
layer i reads entry i modulo that size.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from . import guards


def of_distances(stack: PreTrainedModel, first: int, last: int) -> Tensor | None:
    """Return the biases of all distances from `first` to `last`, [1 or layers, heads, distances].

    None if the stack has no bias.
    """
    if guards.has_no_bias(stack):
        return None
    biases = stack.score_bias.biases_of(torch.arange(first, last + 1)[None])
    different = {id(bias): bias for bias in biases}.values()
    return torch.stack([bias.squeeze(1) for bias in different])


def of_next_token(stack: PreTrainedModel, keys: int, dtype: torch.dtype) -> Tensor | None:
    """Return the biases of the last of `keys` tokens, [1 or layers, kv_heads, groups, keys]."""
    biases = of_distances(stack, 1 - keys, 0)
    if biases is None:
        return None
    return biases.to(dtype).unflatten(1, (stack.config.num_key_value_heads, -1))


def of_whole_sequences(stack: PreTrainedModel, length: int, dtype: torch.dtype) -> Tensor | None:
    """Return the biases of all pairs, [1 or layers, 1, heads, query, key].

    Later keys are hidden where the stack is causal.
    """
    biases = of_distances(stack, 1 - length, length - 1)
    if biases is None:
        return None
    biases = biases.to(dtype)
    if stack.score_bias.is_causal:
        biases[..., length:] = -torch.inf
    # One window of `length` keys for each query; the last query reads the first window.
    return biases.unfold(-1, length, 1).flip(-2).unsqueeze(1)
