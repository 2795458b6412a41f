"""Weights that torchao holds in eight bits, multiplied as they are by torch's own kernel.

A layer that `Int8WeightOnlyConfig` has quantised widens its weight for each product. torch has a
kernel that does not, for few tokens in bfloat16: it reads half of what a layer in bfloat16 reads.
"""

import torch

MOST_TOKENS = 16  # with more, to widen the weight once is quicker
WHOLE = 16  # numbers of a row that the kernel reads at once, beyond its end where it has fewer


def is_eight_bits(tensor) -> bool:
    """Whether it belongs to a model in bfloat16: whole numbers, times a scale of each row."""
    kind = type(tensor)
    return (
        kind.__name__ == "Int8Tensor"
        and kind.__module__.startswith("torchao.")
        and tensor.dtype == torch.bfloat16
        and tensor.block_size == [1, tensor.shape[1]]
        and tensor.shape[1] % WHOLE == 0
        and tensor.act_quant_kwargs is None
        and tensor.act_pre_scale is None
        and (tensor.zero_point is None or not tensor.zero_point.any())
    )


def eight_bit_function(weight, bias, tokens: int):
    """linear(states)."""
    numbers, scales = weight.qdata, weight.scale.flatten().to(weight.dtype)

    def multiply(states):
        states = states[None] if tokens == 1 else states.contiguous()
        product = torch.ops.aten._weight_int8pack_mm(states, numbers, scales)
        if bias is not None:
            product += bias
        return product[0] if tokens == 1 else product

    return multiply
