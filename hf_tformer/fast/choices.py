"""Choose among functions that compute the same product, by timing them.

A choice is made when a shape is first needed, and kept for the process. It costs about a
millisecond, and for the larger weights of single tokens, which are read from memory, about thirty:
of a large weight some rows are multiplied, and many tokens stand for more.
"""

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

TensorFunction = Callable[[Tensor], Tensor]
# Returns functions by name, of which the first is torch's own, for a weight and a number of tokens.
Functions = Callable[[Tensor, int], Mapping[str, TensorFunction]]

SMALL = 2**14  # numbers of a weight with which a product costs no more than its call
UNCACHED = 2**16  # numbers of a weight from which on it is timed as it is read from memory,
MEMORY = 48 * 2**20  # as one of many copies with so many bytes, more than caches hold
PART = 2**20  # numbers of the part of a weight that is multiplied
MANY = 64  # tokens that stand for more of them
ROUNDS = 4  # calls with a weight that stays in a cache
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
    """Return the name of the fastest function, or of the first if none is faster by a margin.

    Weights of a single token are read from memory in each step. In a cache, where a weight that is
    multiplied again and again stays, other functions are the fastest.
    """
    weights = [weight]
    if tokens == 1 and weight.numel() >= UNCACHED and torch.get_num_threads() > 1:
        weights = list(weight.new_ones(max(1, MEMORY // weight.nbytes), *weight.shape))
    states = weight.new_ones(*([tokens] if tokens > 1 else []), weight.shape[1])
    seconds = {}
    for name, prepared in functions(weights[0], tokens).items():
        prepared(states)  # the first call prepares
        calls = [functions(copy, tokens)[name] for copy in weights]
        times = [clock(call, states) for call in calls * (ROUNDS if len(calls) == 1 else 1)]
        # Other processes only slow a call down; what is read from memory takes a varying time.
        seconds[name] = min(times) if len(weights) == 1 else median(times)
    first, best = next(iter(seconds)), min(seconds, key=seconds.__getitem__)
    return best if seconds[best] < MARGIN * seconds[first] else first


def clock(function: TensorFunction, states: Tensor) -> float:
    start = perf_counter()
    function(states).contiguous()  # the next operation would have to do it
    return perf_counter() - start
