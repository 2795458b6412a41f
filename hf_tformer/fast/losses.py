"""The loss that makes its gradients on the way forward, while the logits are at hand.

It takes the place of `sum_by_chunks` of model/losses.py, which calls the head a second time for the
gradients. Tensor parallel processes compute the logits of their own rows of the head.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..model import losses
from ..model.losses import Unprojected
from ..scale.vocabulary import (
    SplitVocabulary,
    WholeVocabulary,
    is_fully_sharded,
    is_split,
    own_part,
)

Tensors = tuple[Tensor, Tensor, Tensor | None]  # hidden states, weight and bias of the head


def is_readable(head: Any) -> bool:
    """Return whether calling the head is a product with its weight, and nothing else.

    Adapters, quantisers and offloading replace it or wrap its call: then it has to be called. So
    does sharding, with two exceptions: FSDP has gathered the weight by now, together with that of
    the norm before it, and tensor parallel processes hold some rows each.
    """
    attributes = vars(head)
    # torch has no public way to list hooks. Where these names are gone, the head is called.
    hooks = [attributes.get(name, "unknown") for name in ("_forward_hooks", "_forward_pre_hooks")]
    is_hooked = any(len(found) > is_fully_sharded(head) for found in hooks)
    is_linear = type(head) is nn.Linear or is_fully_sharded(head)
    # A plain weight is called as its class says, a split one as transformers' plan does.
    is_plain = type(head.weight) in (nn.Parameter, torch.Tensor) and "forward" not in attributes
    is_planned = is_split(head.weight) and "forward" in attributes
    return is_linear and not is_hooked and (is_plain or is_planned)


def sum_fused(
    unprojected: Unprojected, labels: Tensor, ignore_index: int, *settings: float
) -> Tensor:
    """Sum the cross entropies; nothing larger than a chunk of logits is held on the way."""
    hidden_states = unprojected.hidden_states.flatten(0, -2)  # [tokens, hidden]
    head: Any = unprojected.head
    inputs = (hidden_states, head.weight, head.bias)
    labels = labels.to(hidden_states.device).long()
    options = (labels, ignore_index, *settings, product_dtype(hidden_states))
    if is_split(head.weight):
        return sum_split(inputs, options)
    return LinearCrossEntropy.apply(chunked_cross_entropy, *inputs, *options, needed(inputs))


@torch.compiler.disable  # processes talk to each other within
def sum_split(inputs: tuple[Tensor, Any, Any], options: tuple[Any, ...]) -> Tensor:
    """Sum the cross entropies where the processes hold some rows of the head each."""
    vocabulary = SplitVocabulary(inputs[1].device_mesh, len(inputs[1]))
    inputs = own_part(*inputs)

    def compute(*arguments: Any) -> tuple[Tensor, ...]:
        return cross_entropy_by_chunks(vocabulary, *arguments)

    return LinearCrossEntropy.apply(compute, *inputs, *options, needed(inputs))


def needed(inputs: Iterable[Tensor | None]) -> list[bool]:
    """Return for which of the inputs a gradient is wanted."""
    is_training = torch.is_grad_enabled()
    return [is_training and tensor is not None and tensor.requires_grad for tensor in inputs]


def product_dtype(hidden_states: Tensor) -> torch.dtype:
    """The dtype a linear layer would compute in; on a CPU at least float32, which is faster."""
    device = hidden_states.device.type
    is_cast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if is_cast else hidden_states.dtype
    return torch.promote_types(dtype, torch.float32) if device == "cpu" else dtype


class LinearCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass; the backward pass scales them in place, once."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[..., tuple[Tensor, ...]], *arguments: Any) -> Tensor:
        total, *gradients = compute(*arguments)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (
            gradient.mul_(scale) if needed else None
            for gradient, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[1:4], strict=True)
        )
        return None, *scaled, None, None, None, None, None, None


# One opaque operation to torch.compile: the loop below would be compiled anew for each length.
@torch.library.custom_op(
    "tformer::chunked_cross_entropy",
    mutates_args=(),
    schema="(Tensor hidden_states, Tensor weight, Tensor? bias, Tensor labels, int ignore_index, "
    "float label_smoothing, float z_loss, ScalarType dtype, bool[] needed) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def chunked_cross_entropy(
    hidden_states: Tensor, weight: Tensor, *arguments: Any
) -> tuple[Tensor, ...]:
    """Call `cross_entropy_by_chunks` where this process has the whole vocabulary."""
    return cross_entropy_by_chunks(WholeVocabulary(len(weight)), hidden_states, weight, *arguments)


@chunked_cross_entropy.register_fake
def describe_results(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any
) -> tuple[Tensor, ...]:
    *_, dtype, needed = arguments
    exact = torch.promote_types(dtype, torch.float32)
    inputs = (hidden_states, weight, bias)
    gradients = zeros_like_needed(inputs, needed, exact)
    return hidden_states.new_zeros((), dtype=exact), *as_stored(gradients, inputs)


def cross_entropy_by_chunks(
    vocabulary: WholeVocabulary,
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    dtype: torch.dtype,
    needed: list[bool],
) -> tuple[Tensor, ...]:
    """Sum the cross entropies; return the sum and its gradients by states, weight and bias.

    Products are taken in `dtype`, all sums in float32 at least. A gradient that is not needed is
    empty.
    """
    exact = torch.promote_types(dtype, torch.float32)
    total = hidden_states.new_zeros((), dtype=exact)
    by_states, by_weight, by_bias = zeros_like_needed((hidden_states, weight, bias), needed, exact)
    with torch.autocast(hidden_states.device.type, enabled=False):
        table = weight.to(dtype)
        offset = None if bias is None else bias.to(dtype)
        size = min(losses.CHUNK_TOKENS, len(labels))
        buffer = hidden_states.new_empty(size, len(table), dtype=exact)
        for tokens in chunks(labels, ignore_index):
            states = hidden_states[tokens].to(dtype)
            logits = project_into(states, table, offset, buffer[: len(states)])
            total += turn_into_gradients(
                vocabulary, logits, labels[tokens], ignore_index, label_smoothing, z_loss
            )
            gradients = logits
            if needed[2]:
                by_bias += gradients.sum(0)
            gradients = gradients.to(dtype)
            if needed[0]:
                by_states[tokens] = (gradients @ table).to(exact)
            if needed[1]:
                add_product(by_weight, gradients.t(), states)
    return total, *as_stored((by_states, by_weight, by_bias), (hidden_states, weight, bias))


def zeros_like_needed(tensors: Tensors, needed: list[bool], dtype: torch.dtype) -> list[Tensor]:
    """Allocate what the gradients are summed up in; one that is not needed is empty."""
    return [
        tensors[0].new_zeros(tensor.shape if is_needed and tensor is not None else 0, dtype=dtype)
        for tensor, is_needed in zip(tensors, needed, strict=True)
    ]


def as_stored(gradients: Iterable[Tensor], tensors: Tensors) -> list[Tensor]:
    """Convert each gradient to the dtype of its tensor."""
    return [
        gradient if tensor is None else gradient.to(tensor.dtype)
        for gradient, tensor in zip(gradients, tensors, strict=True)
    ]


def chunks(labels: Tensor, ignore_index: int) -> Iterable[Tensor | slice]:
    """Choose the tokens of each chunk; ignored ones are left out where asking costs no wait."""
    if labels.device.type == "cpu" and not (counted := labels != ignore_index).all():
        return counted.nonzero().flatten().split(losses.CHUNK_TOKENS)
    return [
        slice(start, start + losses.CHUNK_TOKENS)
        for start in range(0, len(labels), losses.CHUNK_TOKENS)
    ]


def turn_into_gradients(
    vocabulary: WholeVocabulary,
    logits: Tensor,
    labels: Tensor,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
) -> Tensor:
    """Sum the loss of some tokens, and overwrite their logits with the loss's gradient."""
    is_counted = (labels != ignore_index)[:, None]
    counted = is_counted.to(logits.dtype)
    labels, is_here = vocabulary.place(labels[:, None], is_counted)
    losses = (label_smoothing - 1) * vocabulary.total(logits.gather(1, labels).where(is_here, 0))
    if label_smoothing:
        losses -= label_smoothing / vocabulary.size * vocabulary.total(logits.sum(-1, keepdim=True))
    largest = vocabulary.largest(logits.amax(-1, keepdim=True))
    sums = vocabulary.total(logits.sub_(largest).exp_().sum(-1, keepdim=True))
    log_sums = largest + sums.log()
    losses += log_sums + z_loss * log_sums.square()

    logits.mul_(counted * (1 + 2 * z_loss * log_sums) / sums)  # softmax, zero where ignored
    if label_smoothing:
        logits.sub_(counted * (label_smoothing / vocabulary.size))
    logits.scatter_add_(1, labels, is_here.to(logits.dtype) * (label_smoothing - 1))
    return losses.where(is_counted, 0).sum()


def project_into(states: Tensor, table: Tensor, offset: Tensor | None, out: Tensor) -> Tensor:
    """Apply a linear layer into `out`: new memory for each chunk would cost as much again."""
    if out.dtype != states.dtype:
        return out.copy_(nn.functional.linear(states, table, offset))
    torch.mm(states, table.t(), out=out)
    return out if offset is None else out.add_(offset)


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to `total`; the sums keep its precision."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


losses.sum_by_chunks = sum_fused
losses.may_be_called_by_chunks = is_readable
