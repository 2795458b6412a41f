"""Choose among functions that compute the same product, by timing them.

A choice is made when a shape is first needed, and kept for the process. It costs about a
millisecond: of a large weight some rows are multiplied, and many tokens stand for more.
"""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

TensorFunction = Callable[[Tensor], Tensor]
# Returns functions by name, of which the first is torch's own, for a weight and a number of tokens.
Functions = Callable[[Tensor, int], Mapping[str, TensorFunction]]

SMALL = 2**14  # numbers of a weight with which a product costs no more than its call
PART = 2**20  # numbers of the part of a weight that is multiplied
MANY = 64  # tokens that stand for more of them
ROUNDS = 4  # the fastest one counts: the first prepares, and other processes only slow one down
MARGIN = 0.9  # of the time of torch's own function, which another has to stay below

# What was chosen in this process, by shape, type, number of tokens and threads.
CHOICES: dict[tuple[Any, ...], str] = {}


def fastest(functions: Functions, weight: Tensor, tokens: int) -> str:
    """Return the name of the fastest function for a weight and so many tokens.

    Where torch is to be deterministic, nothing is timed: what is chosen could differ next time.
    """
    tokens = min(1 << (tokens.bit_length() - 1), MANY)  # as many stand for up to twice as many
    names = tuple(functions(weight, tokens))
    if weight.numel() < SMALL or torch.are_deterministic_algorithms_enabled():
        return "vector" if "vector" in names else names[0]
    key = (*weight.shape, weight.dtype, tokens, torch.get_num_threads(), names)
    if key not in CHOICES:
        rows = max(1, PART // weight.shape[1])
        CHOICES[key] = time_and_choose(functions, weight[:rows], tokens)
    return CHOICES[key]


def time_and_choose(functions: Functions, weight: Tensor, tokens: int) -> str:
    """Return the name of the fastest function, or of the first if none is faster by a margin."""
    candidates = functions(weight, tokens)
    states = weight.new_ones(*([tokens] if tokens > 1 else []), weight.shape[1])
    seconds = dict.fromkeys(candidates, float("inf"))
    for _ in range(ROUNDS):
        for name, function in candidates.items():
            start = perf_counter()
            function(states).contiguous()  # the next operation would have to do it
            seconds[name] = min(seconds[name], perf_counter() - start)
    first, best = next(iter(seconds)), min(seconds, key=seconds.__getitem__)
    return best if seconds[best] < MARGIN * seconds[first] else first
