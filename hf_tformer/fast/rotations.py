"""Rotations of the heads of next tokens, in as few operations as there can be."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..model.attention import rotate_heads
from ..model.layer_types import no_rotation, rotation_of_type
from ..model.layers import Layer
from ..model.norms import unchanged

# How the heads of one token are rotated: a matrix [head_dim, head_dim], the cosines and signed
# sines of rotate_heads(), or () for no rotation.
Rotation = Tensor | tuple[Tensor, ...]
PositionEmbeddings = tuple[Tensor, Tensor]  # (cos, sin), each [sequences or 1, tokens, dims]
# What rotates a layer's heads: the name of its type, ALIKE for all layers, or None for nothing.
ALIKE = "all layers"


def is_known_rotation(own_rotation: object) -> bool:
    """Return whether it is known which rotation a layer takes."""
    is_of_type = type(own_rotation) is partial and own_rotation.func is rotation_of_type
    return is_of_type or own_rotation in (unchanged, no_rotation)


def rotation_key(layer: Layer) -> str | None:
    """Return which of the rotations by_key() a layer takes."""
    own_rotation: Any = getattr(layer, "own_rotation", unchanged)
    if own_rotation is no_rotation:
        return None
    return ALIKE if own_rotation is unchanged else str(own_rotation.args[0])


def by_key(position_embeddings: Any) -> dict[str | None, PositionEmbeddings | None]:
    """Return the result of a rotary module by the key of the layers that take it."""
    named = position_embeddings
    if not isinstance(named, dict):
        named = {ALIKE: position_embeddings}
    return {**named, None: None}


def rotations_by_key(
    position_embeddings: Any,
    rotate: Callable[[PositionEmbeddings], Sequence[Rotation]],
    tokens: int,
) -> list[dict[str | None, Rotation]]:
    """Return the rotations of each token by key, () for none."""
    pairs = by_key(position_embeddings).items()
    made = {key: [()] * tokens if pair is None else rotate(pair) for key, pair in pairs}
    return [{key: made[key][token] for key in made} for token in range(tokens)]


def rotations_of(
    position_embeddings: PositionEmbeddings, sequences: int, head_dim: int
) -> Sequence[Rotation]:
    """Return the rotation of each token.

    At batch size 1 in float32 it is a matrix to multiply the heads by: one operation instead of
    three. For more sequences or narrower numbers the product would cost more than these.
    """
    cos = position_embeddings[0]
    if sequences == 1 and cos.dtype in (torch.float32, torch.float64):
        return matrices(*signed(position_embeddings), head_dim)
    return tables_of(position_embeddings)


def tables_of(position_embeddings: PositionEmbeddings) -> list[tuple[Tensor, ...]]:
    """Return the cosines and signed sines of each token, [(sequences,) 1, dims] each."""
    tables = (table.unsqueeze(-2).squeeze(0) for table in signed(position_embeddings))
    return list(zip(*(table.unbind(-3) for table in tables), strict=True))


def signed(position_embeddings: PositionEmbeddings) -> tuple[Tensor, Tensor]:
    """Return the cosines, and the sines with the sign that they are added with."""
    cos, sin = position_embeddings
    half = sin.shape[-1] // 2
    return cos, torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)


def matrices(cos: Tensor, signed_sin: Tensor, head_dim: int) -> tuple[Tensor, ...]:
    """Build the matrix [head_dim, head_dim] of each token from tables [1, tokens, dims]."""
    size = cos.shape[-1]
    cos, signed_sin = cos[0], signed_sin[0]
    same = torch.eye(size, dtype=cos.dtype, device=cos.device)
    partner = same.roll(size // 2, dims=0)
    rotated = torch.addcmul(same * cos.unsqueeze(-2), partner, signed_sin.unsqueeze(-2))
    if size == head_dim:
        return rotated.unbind()
    whole = torch.eye(head_dim, dtype=cos.dtype, device=cos.device)
    whole = whole.repeat(len(cos), 1, 1)
    whole[:, :size, :size] = rotated
    return whole.unbind()


def apply_rotation(states: Tensor, rotation: Rotation) -> Tensor:
    """Rotate each head of next tokens, [(sequences,) heads, head_dim].

    Made contiguous: a product of several tokens may not be, and flash attention would leave it to a
    slower kernel.
    """
    if not isinstance(rotation, tuple):
        return states @ rotation
    states = states.contiguous()
    return rotate_heads(states, *rotation) if rotation else states
