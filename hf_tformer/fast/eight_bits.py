"""Products with weights that torchao holds in eight bits, by a kernel of torch's own.

A layer that `Int8WeightOnlyConfig` has quantised widens its weight for each product. torch has a
kernel that does not, for few tokens in bfloat16: it reads half as many bytes as a bfloat16 layer.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

MOST_TOKENS = 16  # with more, widening the weight once is faster
BLOCK = 16  # numbers of a row that the kernel reads at once, beyond its end where it has fewer


def is_eight_bits(tensor: Any) -> bool:
    """Return whether a weight of a bfloat16 model is stored as int8 with one scale for each row."""
    kind = type(tensor)
    return (
        kind.__name__ == "Int8Tensor"
        and kind.__module__.startswith("torchao.")
        and tensor.dtype == torch.bfloat16
        and tensor.block_size == [1, tensor.shape[1]]
        and tensor.shape[1] % BLOCK == 0
        and tensor.act_quant_kwargs is None
        and tensor.act_pre_scale is None
        and (tensor.zero_point is None or not tensor.zero_point.any())
    )


def eight_bit_function(weight: Any, bias: Tensor | None, tokens: int) -> Callable[[Tensor], Tensor]:
    """Return the linear layer as a function of so many tokens."""
    numbers, scales = weight.qdata, weight.scale.flatten().to(weight.dtype)

    def multiply(states: Tensor) -> Tensor:
        states = states[None] if tokens == 1 else states.contiguous()
        product = torch.ops.aten._weight_int8pack_mm(states, numbers, scales)
        if bias is not None:
            product += bias
        return product[0] if tokens == 1 else product

    return multiply
