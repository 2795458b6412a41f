"""Choose among functions that compute the same product, by timing them at work.

The first calls with a shape take the functions in turns, a few calls each, and what they return is
used. So a choice costs only what slower functions take longer, and it is made where it counts: in a
step, in which weights come from memory, with the threads and beside the processes of this machine.
It is kept for the process.
"""

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

SMALL = 2**14  # numbers of a weight with which a product costs no more than its call
MANY = 64  # tokens that stand for more of them
TURN = 4  # calls of a function in a row, of which the first is not counted: it follows another
TURNS = 6  # of each function at most
SECONDS = 0.02  # of calls after which a round of turns is the last
MARGIN = 0.95  # of the time of torch's own function, which another has to stay below

Function = Callable[..., Tensor]
Key = tuple[Any, ...]  # shape, type, number of tokens and threads, names of the functions

CHOICES: dict[Key, str] = {}  # what was chosen in this process
TRIALS: "dict[Key, Trial]" = {}  # what is being timed


class Trial:
    """The times of some functions, until one of them is chosen."""

    def __init__(self, key: Key, names: tuple[str, ...]) -> None:
        self.key, self.names, self.calls = key, names, 0
        self.times: dict[str, list[float]] = {name: [] for name in names}
        self.seconds = 0.0

    def run(self, functions: Mapping[str, Function], *tensors: Tensor) -> Tensor:
        """Call the function that was chosen, or until then the one whose turn it is."""
        chosen = CHOICES.get(self.key)
        if chosen is not None:
            return functions[chosen](*tensors)
        name = self.names[self.calls // TURN % len(self.names)]
        start = perf_counter()
        result = functions[name](*tensors).contiguous()  # the next operation would have to do it
        self.note(name, perf_counter() - start, len(tensors[-1]))
        return result

    def note(self, name: str, seconds: float, tokens: int) -> None:
        """Take note of a call; the numbers of tokens may differ from one to the next."""
        if self.calls % TURN:
            self.times[name].append(seconds / tokens)
        self.calls, self.seconds = self.calls + 1, self.seconds + seconds
        rounds, rest = divmod(self.calls, TURN * len(self.names))
        is_enough = rounds >= TURNS or self.seconds > SECONDS
        if rest == 0 and is_enough and all(self.times.values()):  # threads may share a trial
            CHOICES[self.key] = self.best()
            TRIALS.pop(self.key, None)

    def best(self) -> str:
        """Return the fastest function, or the first if none is faster by more than chance.

        Of all times the lower quartile counts: other processes only slow a call down.
        """
        usual = {name: sorted(times)[len(times) // 4] for name, times in self.times.items()}
        best = min(usual, key=usual.__getitem__)
        return best if usual[best] < MARGIN * usual[self.names[0]] else self.names[0]


def fastest(functions: Mapping[str, Function], weight: Tensor, tokens: int) -> Function:
    """Return the fastest function for a weight and so many tokens; the first one is torch's own.

    Where torch is to be deterministic, nothing is timed: what is chosen could differ next time.
    """
    names = tuple(functions)
    if weight.numel() < SMALL or torch.are_deterministic_algorithms_enabled():
        return functions[names[1] if tokens == 1 else names[0]]  # matrix times vector, or torch's
    tokens = min(1 << (tokens.bit_length() - 1), MANY)  # as many stand for up to twice as many
    key = (*weight.shape, weight.dtype, tokens, torch.get_num_threads(), names)
    if key in CHOICES:
        return functions[CHOICES[key]]
    trial = TRIALS.get(key) or TRIALS.setdefault(key, Trial(key, names))
    return partial(trial.run, functions)
