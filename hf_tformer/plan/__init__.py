"""Planning a training: operations, memory, traffic and time before a device is rented."""

from .flops import training_flops

__all__ = ["training_flops"]
