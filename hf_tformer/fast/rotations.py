"""How the heads of next tokens are rotated, in as few operations as there can be."""

import torch

from ..model.attention import rotate_heads


def rotations_of(position_embeddings, texts: int, head_dim: int) -> list:
    """For each token of (cos, sin) [texts or 1, tokens, dims] what apply_rotation() takes.

    For one text in float32 a matrix to multiply its heads by: one operation instead of three. Of
    more texts, or of narrower numbers, a product costs more than these.
    """
    cos = position_embeddings[0]
    if texts == 1 and cos.dtype in (torch.float32, torch.float64):
        return matrices(*signed(position_embeddings), head_dim)
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
    """[1, tokens, dims] → [head_dim, head_dim] for each token."""
    size = cos.shape[-1]
    cos, signed_sin = cos[0], signed_sin[0]
    same = torch.eye(size, dtype=cos.dtype, device=cos.device)
    partner = same.roll(size // 2, dims=0)
    turned = torch.addcmul(same * cos.unsqueeze(-2), partner, signed_sin.unsqueeze(-2))
    if size == head_dim:
        return turned.unbind()
    whole = torch.eye(head_dim, dtype=cos.dtype, device=cos.device)
    whole = whole.repeat(len(cos), 1, 1)
    whole[:, :size, :size] = turned
    return whole.unbind()


def apply_rotation(states, rotation):
    """[(texts,) heads, head_dim], each head turned; () turns nothing.

    Contiguous: a product of some tokens is not, and flash attention would leave it to a slower way.
    """
    if not isinstance(rotation, tuple):
        return states @ rotation
    states = states.contiguous()
    return rotate_heads(states, *rotation) if rotation else states
