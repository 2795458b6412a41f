"""Measure what a head does: each measure is a mean over the rows of its weights.

    weights [layers, heads, rows, columns] → name → [layers, heads]

A measure is omitted where it has no meaning: where no token occurs twice, and in cross-attention.
The page explains each; see MEASURES in page/src/words.ts.
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def measure_heads(
    weights: "torch.Tensor", rows: list[str], is_self: bool
) -> "dict[str, torch.Tensor]":
    """Return each measure as [layers, heads]; `rows` are the tokens that attend."""
    import torch

    repeated = follows_the_same(rows) if is_self else None
    layers = [measure_layer(layer, repeated) for layer in weights]  # to hold one layer's tensors
    return {name: torch.stack([layer[name] for layer in layers]) for name in layers[0]}


def measure_layer(
    weights: "torch.Tensor", repeated: "torch.Tensor | None"
) -> "dict[str, torch.Tensor]":
    """Return each measure of one layer as [heads]; `repeated` is None for cross-attention."""
    import torch

    rows, columns = (torch.arange(length) for length in weights.shape[1:])
    found = {"entropy": entropy(weights), "first": weights[..., 0].mean(-1)}
    if repeated is None:
        return found
    distance = (rows[:, None] - columns[None]).abs().to(weights.dtype)
    found["diagonal"] = weights.diagonal(dim1=-2, dim2=-1).mean(-1)
    found["distance"] = torch.tensordot(weights, distance, dims=2) / len(rows)
    if len(rows) > 1:
        found["previous"] = weights.diagonal(-1, dim1=-2, dim2=-1).mean(-1)
    if repeated.any():
        counted = repeated.to(weights.dtype)
        found["induction"] = torch.tensordot(weights, counted, dims=2) / repeated.any(-1).sum()
    return found


def entropy(weights: "torch.Tensor") -> "torch.Tensor":
    """Return the entropy in bits: 0 if all weight is on one token, 3 if it is shared by eight."""
    import torch

    return (torch.special.entr(weights).sum(-1).mean(-1) / math.log(2)).abs()  # never -0.0


def count_repeats(rows: list[str]) -> int:
    """Return how many tokens the measure of induction counts: those with an earlier copy."""
    return int(follows_the_same(rows).any(-1).sum())


def follows_the_same(tokens: list[str]) -> "torch.Tensor":
    """Return [row, column]: whether the column's token follows an earlier copy of the row's."""
    import torch

    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    ids = torch.tensor([numbers[token] for token in tokens])
    same = (ids[:, None] == ids[None]).tril(-1)  # [row, earlier column]
    return same.roll(1, dims=1) & torch.ones_like(same).tril(-1)
