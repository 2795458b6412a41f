"""The part of the vocabulary whose logits this process computes: all of it, or some rows.

Tensor parallel processes hold some rows of the output projection each. All that a loss needs from
the others is a few numbers for each token: the largest logit, and sums.
"""

import torch
from torch import Tensor, nn

if torch.distributed.is_available():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


class WholeVocabulary:
    """One process computes the logits of all entries of the vocabulary."""

    def __init__(self, size: int):
        self.size = size

    def place(self, labels: Tensor, is_counted: Tensor) -> tuple[Tensor, Tensor]:
        """Return where labels stand among the logits of this process, and which of them do."""
        return labels.where(is_counted, 0), is_counted

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        return values

    def largest(self, values: Tensor) -> Tensor:
        return values


class SplitVocabulary(WholeVocabulary):
    """Each process of a mesh computes equally many logits, the last ones fewer."""

    def __init__(self, mesh: "DeviceMesh", size: int):
        super().__init__(size)
        self.mesh = mesh
        self.first = -(-size // mesh.size()) * mesh.get_local_rank()
        self.end = min(size, self.first - (-size // mesh.size()))

    def place(self, labels: Tensor, is_counted: Tensor) -> tuple[Tensor, Tensor]:
        is_here = is_counted & (self.first <= labels) & (labels < self.end)
        return (labels - self.first).where(is_here, 0), is_here

    def total(self, values: Tensor) -> Tensor:
        return self.from_all(values, "sum")

    def largest(self, values: Tensor) -> Tensor:
        return self.from_all(values, "max")

    def from_all(self, values: Tensor, operation: str) -> Tensor:
        return DTensor.from_local(values, self.mesh, [Partial(operation)]).full_tensor()


def is_fully_sharded(head: nn.Module) -> bool:
    """Return whether the head is a linear layer whose weight FSDP gathers before it is called."""
    if not torch.distributed.is_available():
        return False
    return isinstance(head, FSDPModule) and nn.Linear in type(head).__bases__


def is_split(weight: Tensor) -> bool:
    """Return whether the processes hold some rows each, and every one of them at least one."""
    if not torch.distributed.is_available() or not isinstance(weight, DTensor):
        return False
    processes = weight.device_mesh.size()
    rows = -(-len(weight) // processes)
    return weight.placements == (Shard(0),) and rows * (processes - 1) < len(weight)


def own_part(
    hidden_states: Tensor, weight: "DTensor", bias: "DTensor | None"
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the tensors that this process computes with.

    Each process has a part of the gradient by the hidden states: in the backward pass they are
    added.
    """
    if not isinstance(hidden_states, DTensor):
        hidden_states = DTensor.from_local(hidden_states, weight.device_mesh, [Replicate()])
    own_states = hidden_states.redistribute(placements=[Replicate()])
    own_bias = None if bias is None else bias.to_local()
    return own_states.to_local(grad_placements=[Partial()]), weight.to_local(), own_bias
