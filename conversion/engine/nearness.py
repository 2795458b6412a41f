"""How near the numbers of two tensors are."""

import torch

# What a dtype rounds, of the norm of a tensor.
ROUNDING = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the norm of the difference, relative to that of the first."""
    one, other = one.float(), other.float()
    return ((one - other).norm() / one.norm().clamp(min=1e-12)).item()
