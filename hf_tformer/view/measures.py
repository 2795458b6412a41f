"""What a head does, in numbers: each is a mean over the rows of its weights.

    weights [layers, heads, rows, columns] → name → [layers, heads]

A measure that says nothing of these tokens (no token occurs twice, cross-attention) is left out.
The page explains each; see MEASURES in page/src/words.ts.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def measure_heads(
    weights: "torch.Tensor", rows: list[str], columns: list[str], is_self: bool
) -> "dict[str, torch.Tensor]":
    import torch

    lengths = torch.arange(len(rows)), torch.arange(len(columns))
    found = {"entropy": entropy(weights), "first": weights[..., 0].mean(-1)}
    if not is_self:
        return found
    distance = (lengths[0][:, None] - lengths[1][None]).abs().to(weights.dtype)
    found["diagonal"] = weights.diagonal(dim1=-2, dim2=-1).mean(-1)
    found["distance"] = (weights * distance).sum(-1).mean(-1)
    if len(rows) > 1:
        found["previous"] = weights.diagonal(-1, dim1=-2, dim2=-1).mean(-1)
    repeated = follows_the_same(rows)
    if repeated.any():
        induced = (weights * repeated).sum(-1)
        found["induction"] = induced[..., repeated.any(-1)].mean(-1)
    return found


def entropy(weights: "torch.Tensor") -> "torch.Tensor":
    """In bits: 0 looks at one token, 3 at eight alike."""
    import torch

    bits = -weights.clamp_min(torch.finfo(weights.dtype).tiny).log2()
    return (weights * bits).sum(-1).mean(-1)


def follows_the_same(tokens: list[str]) -> "torch.Tensor":
    """[row, column]: the column's token comes right after an earlier one that equals the row's."""
    import torch

    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    ids = torch.tensor([numbers[token] for token in tokens])
    same = (ids[:, None] == ids[None]).tril(-1)  # [row, earlier column]
    return same.roll(1, dims=1) & torch.ones_like(same).tril(-1)
