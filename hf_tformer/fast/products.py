"""Products of a weight with one token or with many, by the function of torch that is fastest.

torch's linear layers hand float32 to MKL, Intel's own library, which is slow on the processors of
other makers: a third of what oneDNN reads for a lone token, and half of what it computes for many.
torch.compile calls oneDNN for the same products; so do these, but not on a processor of Intel's,
where MKL is faster at most sizes. What stays with MKL, is not large enough to pay for the other
call, or cannot be given to it:

    float32, float64   one token: matrix times vector; 8 to 63: with the factors exchanged
    bfloat16           as torch's linear layers do, which is oneDNN
    float16            one token: as torch's linear layers do; more: in float32, for torch has no
                       fast product of narrower factors, and its own takes ten times as long
    torchao's int8     up to 16 tokens of a model in bfloat16: as it is (eight_bits.py)
"""

from functools import cache

import torch
from torch import nn

from .eight_bits import MOST_TOKENS, eight_bit_function, is_eight_bits

LARGE = 2**17  # numbers of a weight from which on oneDNN pays
TRANSPOSED = range(8, 64)  # numbers of tokens; with more and with fewer it is the other way round
WIDENED = 2**21  # numbers of a weight that are held in float32 at a time


def linear_function(linear: nn.Linear, tokens: int):
    """linear(states)."""
    weight, bias = linear.weight, linear.bias
    if weight.dtype in (torch.bfloat16, torch.float16):
        return narrow_function(weight, bias, tokens)
    if is_left_to_torch(weight, tokens):  # which is quick with the bias of many tokens
        return lambda states: nn.functional.linear(states, weight, bias)
    # Otherwise a bias is added afterwards: before, it would be written to be read again.
    multiply = product(weight, tokens)
    return multiply if bias is None else lambda states: multiply(states).add_(bias)


def adding_product(linear: nn.Linear, tokens: int):
    """total += linear(states), the product being added where it is made."""
    weight, bias = linear.weight, linear.bias
    if weight.dtype in (torch.bfloat16, torch.float16):
        multiply = narrow_function(weight, bias, tokens)
        return lambda total, states: total.add_(multiply(states))
    add = product_to_add(weight, tokens)
    return add if bias is None else lambda total, states: add(total, states).add_(bias)


def narrow_function(weight, bias, tokens):
    """linear(states) in half precision, rounded once: a bias is added before."""
    if tokens <= MOST_TOKENS and is_eight_bits(weight):
        return eight_bit_function(weight, bias, tokens)
    if weight.dtype == torch.float16 and tokens > 1:
        return lambda states: multiply_in_float32(states, weight, bias)
    return lambda states: nn.functional.linear(states, weight, bias)


def product(weight, tokens):
    if is_for_onednn(weight):
        return onednn_product(weight, tokens)
    if tokens == 1:
        return weight.mv
    if tokens in TRANSPOSED:
        return lambda states: torch.mm(weight, states.t()).t()
    return lambda states: nn.functional.linear(states, weight)


def product_to_add(weight, tokens):
    if tokens in TRANSPOSED or is_for_onednn(weight):
        multiply = product(weight, tokens)
        return lambda total, states: total.add_(multiply(states))
    if tokens == 1:
        return lambda total, states: total.addmv_(weight, states)
    transposed = weight.t()
    return lambda total, states: total.addmm_(states, transposed)


def is_left_to_torch(weight, tokens) -> bool:
    return tokens > 1 and tokens not in TRANSPOSED and not is_for_onednn(weight)


def is_for_onednn(weight) -> bool:
    """In float32, and exactly: whoever asked torch for less precision is left to torch."""
    return (
        weight.dtype == torch.float32
        and weight.is_contiguous()
        and weight.numel() >= LARGE
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and torch.get_float32_matmul_precision() == "highest"
        and not is_made_by_intel()
    )


@cache
def is_made_by_intel() -> bool:
    return str(torch.cpu.get_capabilities().get("cpu_name", "")).startswith("Intel")


def onednn_product(weight, tokens):
    multiply = torch.ops.mkldnn._linear_pointwise
    if tokens == 1:
        return lambda state: multiply(state[None], weight, None, "none", [], "")[0]
    return lambda states: multiply(states, weight, None, "none", [], "")


def multiply_in_float32(states, weight, bias):
    """The product in the dtype of the states, a part of the weight at a time."""
    result, wide = states.new_empty(len(states), len(weight)), states.float()
    step = max(1, WIDENED // weight.shape[1])
    for start in range(0, len(weight), step):
        part = product(weight[start : start + step].float(), len(states))(wide)
        if bias is not None:
            part = part.add_(bias[start : start + step])
        result[:, start : start + step] = part
    return result
