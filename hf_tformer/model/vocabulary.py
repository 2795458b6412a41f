# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Which words of the vocabulary this process makes logits for: all of them, or one part of several.

Tensor parallel processes hold some rows of the output projection each. All that a loss needs from
the others is a few numbers for each token: the largest logit, and sums.
"""

import torch
from torch import nn

if torch.distributed.is_available():
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


class WholeVocabulary:
    """One process has the logits of all words."""

    def __init__(self, size: int):
        self.size = size

    def place(self, labels, is_counted):
        """Where labels stand among the logits of this process, and which of them do."""
        return labels.where(is_counted, 0), is_counted

    def total(self, values):
        """The sum over all processes."""
        return values

    def largest(self, values):
        return values


class SplitVocabulary(WholeVocabulary):
    """Each process of a mesh has the logits of as many words, the last ones of fewer."""

    def __init__(self, mesh, size: int):
        super().__init__(size)
        self.mesh = mesh
        self.first = -(-size // mesh.size()) * mesh.get_local_rank()
        self.end = min(size, self.first - (-size // mesh.size()))

    def place(self, labels, is_counted):
        is_here = is_counted & (self.first <= labels) & (labels < self.end)
        return (labels - self.first).where(is_here, 0), is_here

    def total(self, values):
        return self.from_all(values, "sum")

    def largest(self, values):
        return self.from_all(values, "max")

    def from_all(self, values, operation):
        return DTensor.from_local(values, self.mesh, [Partial(operation)]).full_tensor()


def is_fully_sharded(head: nn.Module) -> bool:
    """Whether it is a linear layer whose weight FSDP gathers before it is called."""
    if not torch.distributed.is_available():
        return False
    return isinstance(head, FSDPModule) and nn.Linear in type(head).__bases__


def is_split(weight) -> bool:
    """Whether the processes hold some rows each, and every one of them at least one."""
    if not torch.distributed.is_available() or not isinstance(weight, DTensor):
        return False
    processes = weight.device_mesh.size()
    rows = -(-len(weight) // processes)
    return weight.placements == (Shard(0),) and rows * (processes - 1) < len(weight)


def own_part(hidden_states, weight, bias):
    """The tensors that this process computes with.

    Each one has a part of the gradient by the hidden states: on the way back these are added.
    """
    if not isinstance(hidden_states, DTensor):
        hidden_states = DTensor.from_local(hidden_states, weight.device_mesh, [Replicate()])
    hidden_states = hidden_states.redistribute(placements=[Replicate()])
    bias = None if bias is None else bias.to_local()
    return hidden_states.to_local(grad_placements=[Partial()]), weight.to_local(), bias
