"""How the heads of lone tokens are rotated, in as few operations as there can be."""

import torch

from ..model.attention import turn


def rotations_of(position_embeddings, head_dim: int) -> list:
    """For each token of (cos, sin) [texts or 1, tokens, dims] what turn_heads() takes.

    In float32 a matrix [(texts,) head_dim, head_dim] to multiply a head by: one operation instead
    of three. A product of narrower numbers costs more than these.
    """
    cos, sin = position_embeddings
    half = sin.shape[-1] // 2
    signed_sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
    if cos.dtype in (torch.float32, torch.float64):
        return matrices(cos.squeeze(0), signed_sin.squeeze(0), head_dim).unbind(-3)
    tables = (table.unsqueeze(-2).squeeze(0) for table in (cos, signed_sin))
    return list(zip(*(table.unbind(-3) for table in tables), strict=True))


def matrices(cos, signed_sin, head_dim):
    """[(texts,) tokens, dims] → [(texts,) tokens, head_dim, head_dim]"""
    size = cos.shape[-1]
    same = torch.eye(size, dtype=cos.dtype, device=cos.device)
    partner = same.roll(size // 2, dims=0)
    turned = torch.addcmul(same * cos.unsqueeze(-2), partner, signed_sin.unsqueeze(-2))
    if size == head_dim:
        return turned
    whole = torch.eye(head_dim, dtype=cos.dtype, device=cos.device)
    whole = whole.repeat(*cos.shape[:-1], 1, 1)
    whole[..., :size, :size] = turned
    return whole


def turn_heads(states, rotation):
    """[(texts,) heads, head_dim], each head turned; None turns nothing."""
    if rotation is None:
        return states
    return turn(states, *rotation) if isinstance(rotation, tuple) else states @ rotation
