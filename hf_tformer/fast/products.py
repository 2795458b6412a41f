"""Products of a weight with one token or with many, by the function of torch that is fastest here.

torch has several functions for the same product, and none is the fastest everywhere: on one
processor oneDNN takes a third of the time of MKL, which torch's linear layers call, on another
three times as long, and each depends on the shape, the number of tokens and of threads. So they
are timed while they work, and the linear layer is only left for a function that is faster by more
than chance (choices.py). The functions round differently, in the last bits.

    float32            torch's linear layer; matrix times vector; the factors exchanged; oneDNN
    float64            the same without oneDNN
    bfloat16           as torch's linear layers do, which is oneDNN
    float16            one token: as torch's linear layers do; more: in float32, because torch has
                       no fast product of narrower factors: its own takes ten times as long
    torchao's int8     up to 16 tokens of a bfloat16 model: without widening (eight_bits.py)

Half precision is not chosen by timing: there the last bits are seen in texts.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from .choices import fastest
from .eight_bits import MOST_TOKENS, eight_bit_function, is_eight_bits

TensorFunction = Callable[[Tensor], Tensor]
Product = Callable[[Tensor, Tensor], Tensor]  # of a weight and states
AddingFunction = Callable[[Tensor, Tensor], Tensor]  # adds what it makes of the second to the first

WIDENED = 2**21  # numbers of a weight that are held in float32 at a time


def linear_function(linear: nn.Linear, tokens: int) -> TensorFunction:
    """Return a linear layer as a function of so many tokens."""
    weight, bias = linear.weight, linear.bias
    if weight.dtype in (torch.bfloat16, torch.float16):
        return half_precision_function(weight, bias, tokens)
    return fastest(functions(weight, tokens, bias), weight, tokens)


def adding_product(linear: nn.Linear, tokens: int) -> AddingFunction:
    """Return a function that adds linear(states) to a total, in the same operation if it can."""
    weight, bias = linear.weight, linear.bias
    if weight.dtype in (torch.bfloat16, torch.float16):
        multiply = half_precision_function(weight, bias, tokens)
        return lambda total, states: total.add_(multiply(states))
    add = fastest(adding_functions(weight, tokens), weight, tokens)
    return add if bias is None else lambda total, states: add(total, states).add_(bias)


def product_with(weight: Tensor, tokens: int) -> Product:
    """Return the product of weights like this one with so many tokens, as a function of both."""
    if weight.dtype == torch.float16 and tokens > 1:
        wide = torch.empty_like(weight, dtype=torch.float32, device="meta")
        product = fastest(ways(wide, tokens), wide, tokens)
        return lambda weight, states: product(weight.float(), states.float()).to(states.dtype)
    if weight.dtype in (torch.bfloat16, torch.float16):
        return lambda weight, states: nn.functional.linear(states, weight)
    return fastest(ways(weight, tokens), weight, tokens)


def half_precision_function(weight: Tensor, bias: Tensor | None, tokens: int) -> TensorFunction:
    """Return linear(states) in half precision, rounded once: the bias is added before rounding."""
    if tokens <= MOST_TOKENS and is_eight_bits(weight):
        return eight_bit_function(weight, bias, tokens)
    if weight.dtype == torch.float16 and tokens > 1:
        return float32_function(weight, bias, tokens)
    return lambda states: nn.functional.linear(states, weight, bias)


def functions(weight: Tensor, tokens: int, bias: Tensor | None = None) -> dict[str, TensorFunction]:
    """Return the functions that multiply so many tokens by a weight, torch's own way first."""
    found: dict[str, TensorFunction] = {
        name: partial(multiply, weight) for name, multiply in ways(weight, tokens).items()
    }
    if bias is not None:
        found = {name: then_add(multiply, bias) for name, multiply in found.items()}
    return {**found, "linear": lambda states: nn.functional.linear(states, weight, bias)}


def ways(weight: Tensor, tokens: int) -> dict[str, Product]:
    """Return functions of a weight of this kind and of so many tokens, torch's own way first."""
    found: dict[str, Product] = {
        "linear": lambda weight, states: nn.functional.linear(states, weight)
    }
    if tokens == 1:
        found["vector"] = torch.mv
    else:
        found["exchanged"] = lambda weight, states: torch.mm(weight, states.t()).t()
    if may_use_onednn(weight):
        found["onednn"] = onednn_product if tokens > 1 else onednn_product_of_one
    return found


def then_add(multiply: TensorFunction, bias: Tensor) -> TensorFunction:
    return lambda states: multiply(states).add_(bias)


def adding_functions(weight: Tensor, tokens: int) -> dict[str, AddingFunction]:
    """Return the functions that add the product with a weight to a total, torch's own way first."""
    found = {
        f"{name}, added": add_result_of(multiply)
        for name, multiply in functions(weight, tokens).items()
    }
    if tokens == 1:
        found["vector, added"] = lambda total, states: total.addmv_(weight, states)
    else:
        transposed = weight.t()
        found["linear, added"] = lambda total, states: total.addmm_(states, transposed)
    return found


def add_result_of(multiply: TensorFunction) -> AddingFunction:
    return lambda total, states: total.add_(multiply(states))


def may_use_onednn(weight: Tensor) -> bool:
    """Return whether oneDNN may multiply with a weight, at the precision that torch is set to.

    Only exact float32: a lower setting of torch's float32 precision is left to torch.
    """
    return (
        weight.dtype == torch.float32
        and weight.is_contiguous()
        and torch.backends.mkldnn.is_available()
        and bool(torch.backends.mkldnn.enabled)
        and torch.get_float32_matmul_precision() == "highest"
    )


def onednn_product(weight: Tensor, states: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(states, weight, None, "none", [], "")


def onednn_product_of_one(weight: Tensor, state: Tensor) -> Tensor:
    return onednn_product(weight, state[None])[0]


def float32_function(weight: Tensor, bias: Tensor | None, tokens: int) -> TensorFunction:
    """Return a float16 layer that computes in float32, a part of its weight at a time."""
    parts = weight.split(max(1, WIDENED // weight.shape[1]))
    biases = [None] * len(parts) if bias is None else bias.split(len(parts[0]))
    shapes = [torch.empty_like(part, dtype=torch.float32, device="meta") for part in parts]
    products = [fastest(ways(shape, tokens), shape, tokens) for shape in shapes]

    def multiply(states: Tensor) -> Tensor:
        wide, results = states.float(), []
        for part, added, product in zip(parts, biases, products, strict=True):
            result = product(part.float(), wide)
            results.append((result if added is None else result.add_(added)).to(states.dtype))
        return results[0] if len(results) == 1 else torch.cat(results, dim=-1)

    return multiply
