"""Products of a weight with one token or with many, by the function of torch that is fastest.

torch's linear layers hand float32 to MKL, Intel's own library, which is slow on the processors of
other makers: for a single token it reads a third of what oneDNN reads, for many it computes half as
fast. torch.compile calls oneDNN for the same products. So do these functions, but not on Intel's
processors, where MKL is faster at most sizes. Other products, and those of weights too small to pay
for the call, are computed as follows:

    float32, float64   one token: matrix times vector; 8 to 63: with the factors transposed
    bfloat16           as torch's linear layers do, which is oneDNN
    float16            one token: as torch's linear layers do; more: in float32, because torch has
                       no fast product of narrower factors: its own takes ten times as long
    torchao's int8     up to 16 tokens of a bfloat16 model: without widening (eight_bits.py)
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from .eight_bits import MOST_TOKENS, eight_bit_function, is_eight_bits

TensorFunction = Callable[[Tensor], Tensor]
AddingFunction = Callable[[Tensor, Tensor], Tensor]  # adds what it makes of the second to the first

LARGE = 2**17  # numbers of a weight from which on oneDNN pays
TRANSPOSED = range(8, 64)  # numbers of tokens for which MKL is faster with the factors transposed
WIDENED = 2**21  # numbers of a weight that are held in float32 at a time


def linear_function(linear: nn.Linear, tokens: int) -> TensorFunction:
    """Return a linear layer as a function of so many tokens."""
    weight, bias = linear.weight, linear.bias
    if weight.dtype in (torch.bfloat16, torch.float16):
        return half_precision_function(weight, bias, tokens)
    if is_left_to_torch(weight, tokens):  # which is fast with a bias for many tokens
        return lambda states: nn.functional.linear(states, weight, bias)
    # Otherwise a bias is added afterwards: before, it would be written to be read again.
    multiply = product(weight, tokens)
    return multiply if bias is None else lambda states: multiply(states).add_(bias)


def adding_product(linear: nn.Linear, tokens: int) -> AddingFunction:
    """Return a function that adds linear(states) to a total, in the same operation if it can."""
    weight, bias = linear.weight, linear.bias
    if weight.dtype in (torch.bfloat16, torch.float16):
        multiply = half_precision_function(weight, bias, tokens)
        return lambda total, states: total.add_(multiply(states))
    add = product_to_add(weight, tokens)
    return add if bias is None else lambda total, states: add(total, states).add_(bias)


def half_precision_function(weight: Tensor, bias: Tensor | None, tokens: int) -> TensorFunction:
    """Return linear(states) in half precision, rounded once: the bias is added before rounding."""
    if tokens <= MOST_TOKENS and is_eight_bits(weight):
        return eight_bit_function(weight, bias, tokens)
    if weight.dtype == torch.float16 and tokens > 1:
        return lambda states: multiply_in_float32(states, weight, bias)
    return lambda states: nn.functional.linear(states, weight, bias)


def product(weight: Tensor, tokens: int) -> TensorFunction:
    """Return the product with a weight as a function of so many tokens."""
    if is_for_onednn(weight):
        return onednn_product(weight, tokens)
    if tokens == 1:
        return weight.mv
    if tokens in TRANSPOSED:
        return lambda states: torch.mm(weight, states.t()).t()
    return lambda states: nn.functional.linear(states, weight)


def product_to_add(weight: Tensor, tokens: int) -> AddingFunction:
    """Return a function that adds the product with a weight to a total."""
    if tokens in TRANSPOSED or is_for_onednn(weight):
        multiply = product(weight, tokens)
        return lambda total, states: total.add_(multiply(states))
    if tokens == 1:
        return lambda total, states: total.addmv_(weight, states)
    transposed = weight.t()
    return lambda total, states: total.addmm_(states, transposed)


def is_left_to_torch(weight: Tensor, tokens: int) -> bool:
    return tokens > 1 and tokens not in TRANSPOSED and not is_for_onednn(weight)


def is_for_onednn(weight: Tensor) -> bool:
    """Whether oneDNN multiplies with a weight faster, at the precision that torch is set to.

    Only exact float32: a lower setting of torch's float32 precision is left to torch.
    """
    return (
        weight.dtype == torch.float32
        and weight.is_contiguous()
        and weight.numel() >= LARGE
        and torch.backends.mkldnn.is_available()
        and bool(torch.backends.mkldnn.enabled)
        and torch.get_float32_matmul_precision() == "highest"
        and not is_made_by_intel()
    )


@cache
def is_made_by_intel() -> bool:
    """Whether Intel made the processor, for which MKL is tuned."""
    return str(torch.cpu.get_capabilities().get("cpu_name", "")).startswith("Intel")


def onednn_product(weight: Tensor, tokens: int) -> TensorFunction:
    multiply = torch.ops.mkldnn._linear_pointwise
    if tokens == 1:
        return lambda state: multiply(state[None], weight, None, "none", [], "")[0]
    return lambda states: multiply(states, weight, None, "none", [], "")


def multiply_in_float32(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Apply a float16 layer in float32, a part of its weight at a time."""
    result, wide = states.new_empty(len(states), len(weight)), states.float()
    step = max(1, WIDENED // weight.shape[1])
    for start in range(0, len(weight), step):
        part = product(weight[start : start + step].float(), len(states))(wide)
        if bias is not None:
            part = part.add_(bias[start : start + step])
        result[:, start : start + step] = part
    return result
