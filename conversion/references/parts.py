"""Functions that several references share."""

import torch
from torch import nn

Scaling = tuple[float, float, float, float]  # factor, low, high, original length


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def split_heads(projected: torch.Tensor, heads: int) -> torch.Tensor:
    """Split heads: [batch, seq, heads * size] → [batch, heads, seq, size]."""
    return projected.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, hidden: torch.Tensor
) -> torch.Tensor:
    """Compute attention over [batch, heads, seq, size]; `hidden` is true where a key is masked."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return (weights @ value).transpose(1, 2).flatten(2)


def later(ids: torch.Tensor) -> torch.Tensor:
    """Return the causal mask [seq, seq], true where a token would attend to a later one."""
    length = ids.shape[1]
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def is_padding(ids: torch.Tensor, pad_id: int) -> torch.Tensor:
    """Return the padding mask [batch, 1, 1, seq], true at padding."""
    return (ids == pad_id)[:, None, None, :]


def repeat_heads(states: torch.Tensor, times: int) -> torch.Tensor:
    """Repeat key heads, each for `times` neighbouring query heads."""
    return states.repeat_interleave(times, dim=1)


def rotary_angles(
    length: int, size: int, theta: float, scaling: Scaling | None = None
) -> torch.Tensor:
    """Return angles [length, size / 2]; `scaling` are the four numbers of Llama 3.1."""
    frequencies = theta ** -(torch.arange(0, size, 2).float() / size)
    if scaling:
        factor, low, high, original = scaling
        rotations = original * frequencies / (2 * torch.pi)  # within the original length
        share = ((rotations - low) / (high - low)).clamp(0, 1)  # 1: kept; 0: divided by factor
        frequencies = frequencies * (share + (1 - share) / factor)
    return torch.arange(length).float()[:, None] * frequencies


def sinusoids(length: int, size: int) -> torch.Tensor:
    """Return sines at even and cosines at odd places, [length, size]."""
    angles = rotary_angles(length, size, 10000.0)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :size]
