"""How the heads of lone tokens are rotated, in as few operations as there can be."""

import torch

from ..model.attention import turn


def rotations_of(position_embeddings, head_dim: int) -> list:
    """For each token of (cos, sin) [texts or 1, tokens, dims] what turn_heads() takes.

    In float32 a matrix [(texts,) head_dim, head_dim] to multiply a head by: one operation instead
    of three. A product of narrower numbers costs more than these.
    """
    if position_embeddings[0].dtype in (torch.float32, torch.float64):
        return matrices(*signed(position_embeddings), head_dim).unbind(-3)
    return tables_of(position_embeddings)


def tables_of(position_embeddings) -> list:
    """For each token what turn() takes, [(texts,) 1, dims] each."""
    tables = (table.unsqueeze(-2).squeeze(0) for table in signed(position_embeddings))
    return list(zip(*(table.unbind(-3) for table in tables), strict=True))


def signed(position_embeddings):
    """Cosines and sines, the sines with the sign that they are added with."""
    cos, sin = position_embeddings
    half = sin.shape[-1] // 2
    return cos, torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)


def matrices(cos, signed_sin, head_dim):
    """[texts or 1, tokens, dims] → [(texts,) tokens, head_dim, head_dim]"""
    size = cos.shape[-1]
    cos, signed_sin = cos.squeeze(0), signed_sin.squeeze(0)
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
