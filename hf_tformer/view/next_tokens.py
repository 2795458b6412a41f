"""What a model gave for the next token, at each place where it wrote one.

The most probable tokens have their logits. Of all others, thousands, a few sums are kept from which
the page computes probabilities at another temperature: at 1 they are exact.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MOST = 10  # tokens that are named
GROUPS = 16  # of all others, by their logits


@dataclass(frozen=True)
class NextTokens:
    """Tokens with their logits, the largest first; `others` are (logit, count) of each group."""

    tokens: list[str]
    logits: list[float]
    others: list[tuple[float, int]]


def next_tokens(
    logits: "torch.Tensor", first: int, read: Callable[[list[int]], list[str]]
) -> list[NextTokens]:
    """Return what each row of logits [tokens, vocab] gave, from the one that wrote `first` on."""
    return [of_row(row.float().cpu(), read) for row in logits[first - 1 : -1]]


def of_row(row: "torch.Tensor", read: Callable[[list[int]], list[str]]) -> NextTokens:
    best = row.topk(min(MOST, len(row)))
    rest = row.index_fill(0, best.indices, -math.inf).sort().values[len(best.indices) :]
    rest = rest[rest > -math.inf]  # a mask of the model's own leaves some without a chance
    groups = [group for group in rest.tensor_split(GROUPS) if len(group)]
    others = [(group.logsumexp(0).item() - math.log(len(group)), len(group)) for group in groups]
    return NextTokens(read(best.indices.tolist()), best.values.tolist(), others)
