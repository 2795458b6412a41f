"""Estimate the operations, memory, traffic and time of a training run before renting devices."""

from .flops import training_flops

__all__ = ["training_flops"]
