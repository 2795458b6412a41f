"""What may happen to tensors on their way between two layouts, each step with its way back.

`forward` takes their tensors and gives ours, `inverse` takes ours and gives theirs; both work on
tuples, one entry per name of the rule, and may read sizes from our configuration.
"""

from dataclasses import dataclass

import torch


class Same:
    """The tensor as it is."""

    def forward(self, tensors, config):
        return tensors

    inverse = forward


class Transpose:
    """GPT-2's Conv1D holds [in, out] where Linear holds [out, in]."""

    def forward(self, tensors, config):
        return tuple(tensor.t() for tensor in tensors)

    inverse = forward


@dataclass(frozen=True)
class Split:
    """One fused tensor of theirs is several of ours, of equal size: [parts * out] ↔ parts × [out].

    `transposed` where the fused tensor is the [in, parts * out] of a Conv1D.
    """

    parts: int
    transposed: bool = False

    def forward(self, tensors, config):
        (fused,) = tensors
        return (fused.t() if self.transposed else fused).chunk(self.parts)

    def inverse(self, tensors, config):
        if self.transposed:  # each part first: the whole would have to be copied once more
            return (torch.cat([tensor.t() for tensor in tensors], dim=1),)
        return (torch.cat(tensors),)


@dataclass(frozen=True)
class DropRows:
    """Their table begins with rows that no position ever reads; they come back as zeros."""

    rows: int

    def forward(self, tensors, config):
        return tuple(table[self.rows :] for table in tensors)

    def inverse(self, tensors, config):
        return tuple(
            torch.cat((table.new_zeros(self.rows, *table.shape[1:]), table)) for table in tensors
        )


class Flatten:
    """[1, size] ↔ [size]"""

    def forward(self, tensors, config):
        return tuple(tensor.squeeze(0) for tensor in tensors)

    def inverse(self, tensors, config):
        return tuple(tensor.unsqueeze(0) for tensor in tensors)


class FirstOfTwo:
    """Their second tensor is never read; it comes back as a copy of the first."""

    def forward(self, tensors, config):
        return tensors[:1]

    def inverse(self, tensors, config):
        (tensor,) = tensors
        return tensor, tensor.clone()
