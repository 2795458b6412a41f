"""Products of a weight with one token or with many, by the function of torch that is fastest.

Measured with oneDNN and MKL on AVX512 (`python -m benchmarks products` repeats it).

    float32, float64   one token: matrix times vector, which reads a weight that lies by columns
                       up to twice as fast; 8 to 63: with the factors exchanged
    bfloat16           as torch's linear layers do
    float16            one token: matrix times vector; more: in float32, for torch has no fast
                       product of narrower factors, and makes one that takes ten times as long
"""

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

copies_weights = False  # see hf_tformer.fast.enable()
# Weight → its version and place when it was copied, and the copy.
COPIES = WeakTensorKeyDictionary()
EXCHANGED = range(8, 64)  # numbers of tokens; with more and with fewer it is the other way round
WIDENED = 2**21  # numbers of a weight that are held in float32 at a time


def linear_function(linear: nn.Linear, tokens: int):
    """linear(states). A bias is added afterwards: before, it would be written to be read again."""
    multiply, bias = product(linear.weight, tokens), linear.bias
    return multiply if bias is None else lambda states: multiply(states).add_(bias)


def adding_product(linear: nn.Linear, tokens: int):
    """total += linear(states), the product being added where it is made."""
    add, bias = product_to_add(linear.weight, tokens), linear.bias
    return add if bias is None else lambda total, states: add(total, states).add_(bias)


def product(weight, tokens):
    if tokens == 1 and weight.dtype != torch.bfloat16:
        return for_one_token(weight).mv
    if weight.dtype == torch.float16:
        return lambda states: multiply_in_float32(states, weight)
    if tokens in EXCHANGED and weight.dtype != torch.bfloat16:
        return lambda states: torch.mm(weight, states.t()).t()
    return lambda states: nn.functional.linear(states, weight)


def product_to_add(weight, tokens):
    if weight.dtype in (torch.bfloat16, torch.float16):
        multiply = product(weight, tokens)
        return lambda total, states: total.add_(multiply(states))
    if tokens == 1:
        weight = for_one_token(weight)
        return lambda total, states: total.addmv_(weight, states)
    if tokens in EXCHANGED:
        return lambda total, states: total.add_(torch.mm(weight, states.t()).t())
    transposed = weight.t()
    return lambda total, states: total.addmm_(states, transposed)


def for_one_token(weight):
    """The weight, or a copy of it that lies by columns, made once for as long as it is the same."""
    if not copies_weights or weight.dtype not in (torch.float32, torch.float64):
        return weight
    state = weight._version, weight.data_ptr()
    known = COPIES.get(weight)
    if known is None or known[0] != state:
        COPIES[weight] = known = state, weight.detach().t().contiguous().t()
    return known[1]


def multiply_in_float32(states, weight):
    """The product in the dtype of the states, a part of the weight at a time."""
    result, wide = states.new_empty(len(states), len(weight)), states.float()
    multiply = product_of_wide_factors(len(states))
    step = max(1, WIDENED // weight.shape[1])
    for start in range(0, len(weight), step):
        result[:, start : start + step] = multiply(wide, weight[start : start + step].float())
    return result


def product_of_wide_factors(tokens):
    if tokens in EXCHANGED:
        return lambda states, weight: torch.mm(weight, states.t()).t()
    return nn.functional.linear
