"""What several references have in common."""

import torch


def split_heads(projected, heads):
    """[batch, seq, heads * size] → [batch, heads, seq, size]"""
    return projected.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(query, key, value, hidden):
    """Scaled dot-product attention over [batch, heads, seq, size]; `hidden` says what is unseen."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return (weights @ value).transpose(1, 2).flatten(2)


def later(ids):
    """[seq, seq], true where a token would see one that comes after it."""
    length = ids.shape[1]
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def is_padding(ids, pad_id):
    """[batch, 1, 1, seq], true at padding: no query sees it."""
    return (ids == pad_id)[:, None, None, :]


def repeat_heads(states, times):
    """Each key head serves `times` neighbouring query heads."""
    return states.repeat_interleave(times, dim=1)


def rotary_angles(length, size, theta, scaling=None):
    """Angles [length, size / 2]; `scaling` are the four numbers of Llama 3.1."""
    frequencies = theta ** -(torch.arange(0, size, 2).float() / size)
    if scaling:
        factor, low, high, original = scaling
        turns = original * frequencies / (2 * torch.pi)  # within the length first trained on
        share = ((turns - low) / (high - low)).clamp(0, 1)  # 1: fast, left alone; 0: slowed down
        frequencies = frequencies * (share + (1 - share) / factor)
    return torch.arange(length).float()[:, None] * frequencies


def sinusoids(length, size):
    """Sines at even, cosines at odd places: [length, size]."""
    angles = rotary_angles(length, size, 10000.0)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :size]
