"""Invertible transforms of tensors between two layouts.

`forward` takes their tensors and returns ours, `inverse` the other way round. Both work on tuples
with one entry per name of the rule, and may read sizes from our configuration.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from transformers import PreTrainedConfig

from .errors import ConversionError

Tensors = tuple[torch.Tensor, ...]


class Transform(Protocol):
    """A transform between two layouts, and its inverse."""

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors: ...

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors: ...


class Same:
    """Keep the tensor as it is."""

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tensors

    inverse = forward


SAME = Same()


class Transpose:
    """Transpose a weight: GPT-2's Conv1D holds [in, out] where Linear holds [out, in]."""

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(tensor.t() for tensor in tensors)

    inverse = forward


@dataclass(frozen=True)
class Split:
    """Split a fused tensor of theirs into parts of equal size: [parts * out] ↔ parts × [out].

    `transposed` where the fused tensor is the [in, parts * out] of a Conv1D.
    """

    parts: int
    transposed: bool = False

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        (fused,) = tensors
        return (fused.t() if self.transposed else fused).chunk(self.parts)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        if self.transposed:  # each part first, which saves a copy of the whole
            return (torch.cat([tensor.t() for tensor in tensors], dim=1),)
        return (torch.cat(tensors),)


class StackExperts:
    """Stack the experts of a layer, each of which is three tensors in theirs.

    Theirs are the gates of all experts, then all their ups and all their downs.
    """

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        count = config.num_experts
        gates, ups, downs = (tensors[i * count : (i + 1) * count] for i in range(3))
        pairs = (torch.cat(pair) for pair in zip(gates, ups, strict=True))
        return torch.stack(tuple(pairs)), torch.stack(downs)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        gate_up, down = tensors
        gates, ups = gate_up.chunk(2, dim=1)
        # Each a tensor of its own: a file would hold a view's whole memory.
        return tuple(part.clone() for stack in (gates, ups, down) for part in stack)


class SplitHeads:
    """Split query, key and value; keys and values may have fewer heads than queries."""

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        (fused,) = tensors
        heads, pairs = config.num_attention_heads, config.num_key_value_heads
        return fused.split([config.head_dim * count for count in (heads, pairs, pairs)])

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return (torch.cat(tensors),)


class InterleavedHeads:
    """Split a fused tensor that holds, for each key head, the rows of its queries, key and value.

    With as many queries as keys these are query, key and value of one head after the other.
    """

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        (fused,) = tensors
        groups = fused.unflatten(0, (config.num_key_value_heads, -1, config.head_dim))
        queries = config.num_attention_heads // config.num_key_value_heads
        return tuple(part.flatten(0, 2) for part in groups.split((queries, 1, 1), dim=1))

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        shape = (config.num_key_value_heads, -1, config.head_dim)
        groups = [tensor.unflatten(0, shape) for tensor in tensors]
        return (torch.cat(groups, dim=1).flatten(0, 2),)


@dataclass(frozen=True)
class DropRows:
    """Drop the first rows of a table, which no position reads; they are restored as zeros."""

    rows: int

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(table[self.rows :] for table in tensors)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(
            torch.cat((table.new_zeros(self.rows, *table.shape[1:]), table)) for table in tensors
        )


@dataclass(frozen=True)
class FirstRows:
    """Drop the last rows of a table, which only fill it up; what is written has none of them."""

    size: str  # the field of our configuration that holds how many rows count

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(table[: getattr(config, self.size)] for table in tensors)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tensors


class DropPadding:
    """Drop the rows of positions up to that of padding, which has the number of the padding id.

    Padding alone reads them, so they are restored as zeros.
    """

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return DropRows(config.pad_token_id + 1).forward(tensors, config)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return DropRows(config.pad_token_id + 1).inverse(tensors, config)


class Flatten:
    """Drop the first dimension: [1, size] ↔ [size]."""

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(tensor.squeeze(0) for tensor in tensors)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(tensor.unsqueeze(0) for tensor in tensors)


class FirstOfTwo:
    """Drop the second tensor, which no model reads; it is restored as a copy of the first."""

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tensors[:1]

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        (tensor,) = tensors
        return tensor, tensor.clone()


@dataclass(frozen=True)
class RotaryPairs:
    """Reorder rows: rotary pairs are neighbours (0, 1), (2, 3)... in theirs, (i, i + half) in ours.

    Within each head the first members of all pairs come first, and what does not rotate last.
    `heads` is the field with the number of heads: keys may have fewer than queries.
    """

    heads: str

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(self.regroup(tensor, config, (-1, 2)) for tensor in tensors)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(self.regroup(tensor, config, (2, -1)) for tensor in tensors)

    def regroup(
        self, tensor: torch.Tensor, config: PreTrainedConfig, pairs: tuple[int, int]
    ) -> torch.Tensor:
        heads = tensor.unflatten(0, (getattr(config, self.heads), -1))
        width = self.width(config)
        rotated, rest = heads[:, :width], heads[:, width:]
        rotated = rotated.unflatten(1, pairs).transpose(1, 2).flatten(1, 2)
        return torch.cat((rotated, rest), dim=1).flatten(0, 1)

    @staticmethod
    def width(config: PreTrainedConfig) -> int:
        """Return the part of a head that makes pairs; the proportional type pairs all of it."""
        rope = config.rope_parameters
        if rope["rope_type"] == "proportional":
            return config.head_dim
        return int(config.head_dim * rope.get("partial_rotary_factor", 1.0))


@dataclass(frozen=True)
class SwappedHalves:
    """Exchange the halves of each head, whose rotation has the opposite direction in theirs.

    `heads` is the field with the number of heads.
    """

    heads: str

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(
            tensor.unflatten(0, (getattr(config, self.heads), 2, -1)).flip(1).flatten(0, 2)
            for tensor in tensors
        )

    inverse = forward


@dataclass(frozen=True)
class ModuloHeads:
    """Reorder heads: in theirs query head h reads key head h modulo the number of key heads.

    In ours neighbouring query heads share a key head. `dim` is 0 for the queries, which have a head
    in their rows, and 1 for the output projection, which has it in its columns.
    """

    dim: int = 0

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return self.regroup(tensors, (-1, config.num_key_value_heads, config.head_dim))

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return self.regroup(tensors, (config.num_key_value_heads, -1, config.head_dim))

    def regroup(self, tensors: Tensors, shape: tuple[int, int, int]) -> Tensors:
        dim = self.dim
        groups = (tensor.unflatten(dim, shape) for tensor in tensors)
        return tuple(group.transpose(dim, dim + 1).flatten(dim, dim + 2) for group in groups)


@dataclass(frozen=True)
class Affine:
    """Multiply by a factor and add a number, as theirs does where it computes."""

    factor: float = 1.0
    number: float = 0.0

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple(tensor * self.factor + self.number for tensor in tensors)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        return tuple((tensor - self.number) / self.factor for tensor in tensors)


class Chain:
    """Apply several transforms, one after the other: Chain(RotaryPairs(...), ModuloHeads())."""

    def __init__(self, *transforms: Transform) -> None:
        self.transforms = transforms

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        for transform in self.transforms:
            tensors = transform.forward(tensors, config)
        return tensors

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        for transform in reversed(self.transforms):
            tensors = transform.inverse(tensors, config)
        return tensors


@dataclass(frozen=True)
class Zeros:
    """Fill a vector that theirs lacks, such as the bias of a norm, with zeros."""

    size: str  # the field of our configuration that holds its length
    value: ClassVar[int] = 0
    role: ClassVar[str] = "bias"

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        size = getattr(config, self.size)
        return (torch.full((size,), float(self.value), dtype=config.dtype),)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        if any((tensor != self.value).any() for tensor in tensors):
            raise ConversionError(
                f"a norm has a {self.role} other than {('zero', 'one')[self.value]}, for which "
                f"the other format has no place: choose one whose norms have a {self.role}"
            )
        return ()


class Ones(Zeros):
    """Fill the weight of a norm with ones where theirs has none."""

    value = 1
    role = "weight"


def sinusoids(positions: int, width: int) -> torch.Tensor:
    """Return sines, then cosines, computed in float64 as in transformers: the same bits."""
    dims = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] / 10000.0 ** (dims / width)
    return torch.cat((angles.sin(), angles.cos()), dim=1)[:, :width].float()


def are_sinusoids(table: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether a table holds sinusoids, up to the rounding of a dtype."""
    rounding = 1e-4 if dtype.itemsize >= 4 else 2**-8  # of bfloat16
    return torch.allclose(table.float(), sinusoids(*table.shape), rtol=0, atol=rounding)


class WithSinusoids:
    """Drop a stored table of sinusoids, which ours computes, beside another tensor."""

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        tensor, table = tensors
        if not are_sinusoids(table, table.dtype):
            raise ConversionError(
                "the positions of the file (embed_positions) are no sinusoids, and hf_tformer "
                "computes those: only models whose positions are not trained convert"
            )
        return (tensor,)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        (tensor,) = tensors
        table = sinusoids(config.max_position_embeddings, config.hidden_size)
        return tensor, table.to(tensor.dtype)
