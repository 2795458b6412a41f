# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The training losses: label smoothing and z-loss live here, so that every wrapper trains with the
same ones.

Training never holds all logits: with a vocabulary of 32000 and more they are the largest tensor of
a step, and only their gradient is wanted. `chunked_cross_entropy` makes those of a few tokens at a
time and turns them into gradients before the next.
"""

import torch
from torch import nn

from .vocabulary import SplitVocabulary, WholeVocabulary, is_fully_sharded, is_split, own_part

CHUNK_TOKENS = 512  # fewer slow the matrix products down, more only cost memory


class Unprojected:
    """Logits that have not been made yet: the hidden states and the projection to apply."""

    def __init__(self, hidden_states, projection):
        self.hidden_states = hidden_states
        self.weight = projection.weight
        self.bias = projection.bias


def language_model_loss(
    logits,
    labels,
    num_items_in_batch=None,
    ignore_index=-100,
    label_smoothing=0.0,
    z_loss=0.0,
    **kwargs,
):
    """Cross entropy of each position with its own label, as a mean over the labels that count.

    `num_items_in_batch` replaces that count where a batch is accumulated in parts: the sum is
    divided by it.
    """
    sum_up = sum_unprojected if isinstance(logits, Unprojected) else sum_logits
    labels = labels.flatten()
    total = sum_up(logits, labels, ignore_index, label_smoothing, z_loss)
    count = (labels != ignore_index).sum() if num_items_in_batch is None else num_items_in_batch
    # A batch without a single label has loss 0, not NaN: it must not end a training run.
    return total / torch.as_tensor(count, device=total.device).clamp(min=1)


def causal_language_model_loss(logits, labels, shift_labels=None, ignore_index=-100, **kwargs):
    """The same where position t predicts token t + 1; `shift_labels` are shifted already."""
    if shift_labels is None:
        # trf-ignore: TRF053 (this is the loss function, the one place that shifts)
        shift_labels = nn.functional.pad(labels[..., 1:], (0, 1), value=ignore_index)
    return language_model_loss(logits, shift_labels, ignore_index=ignore_index, **kwargs)


def needs_logits(model: nn.Module, labels, return_logits: bool | None) -> bool:
    """Whether all logits have to be made; training needs none unless it asks for them.

    `return_logits` is the caller's wish, None where it has none.
    """
    if return_logits is None:
        return_logits = not model.training or model.config.return_logits_in_training
    is_own = model.loss_function in (language_model_loss, causal_language_model_loss)
    is_capped = getattr(model.config, "final_logit_softcapping", None) is not None
    needed = labels is None or return_logits or is_capped
    return needed or not is_readable(model.lm_head) or not is_own


def loss_arguments(config, kwargs: dict) -> dict:
    """The configuration adds its own label smoothing and z-loss unless the call says otherwise."""
    settings = {"label_smoothing": config.label_smoothing, "z_loss": config.z_loss}
    return {"vocab_size": config.vocab_size, **settings, **kwargs}


def is_readable(head):
    """Whether the head's weight is all there is to it.

    Adapters, quantisers and offloading put something in its place or around its call: then only
    calling it is right. So does sharding, but its ends are known: FSDP has gathered the weight by
    now, together with that of the norm before it; tensor parallel processes hold some rows each.
    """
    attributes = vars(head)
    # torch has no public way to ask for hooks. Where these names are gone, the head is called.
    hooks = [attributes.get(name, "unknown") for name in ("_forward_hooks", "_forward_pre_hooks")]
    is_hooked = any(len(found) > is_fully_sharded(head) for found in hooks)
    is_linear = type(head) is nn.Linear or is_fully_sharded(head)
    # A plain weight is called as its class says, a split one as transformers' plan does.
    is_plain = type(head.weight) in (nn.Parameter, torch.Tensor) and "forward" not in attributes
    is_planned = is_split(head.weight) and "forward" in attributes
    return is_linear and not is_hooked and (is_plain or is_planned)


def sum_logits(logits, labels, ignore_index, label_smoothing, z_loss):
    """The sum over the labels that count."""
    # In float32 at least: half precision would round away most of what a large vocabulary adds up.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logits = logits.flatten(0, -2)  # [batch, seq, vocab] → [tokens, vocab]
    labels = labels.to(logits.device).long()
    total = nn.functional.cross_entropy(
        logits, labels, ignore_index=ignore_index, reduction="sum", label_smoothing=label_smoothing
    )
    if z_loss:
        ignored = labels == ignore_index
        total = total + z_loss * logits.logsumexp(-1).square().masked_fill(ignored, 0).sum()
    return total


def sum_unprojected(logits, labels, ignore_index, label_smoothing, z_loss):
    """The same sum, and nothing larger than a chunk of logits on the way to it."""
    hidden_states = logits.hidden_states.flatten(0, -2)  # [batch, seq, hidden] → [tokens, hidden]
    inputs = (hidden_states, logits.weight, logits.bias)
    labels = labels.to(hidden_states.device).long()
    settings = (labels, ignore_index, label_smoothing, z_loss, product_dtype(hidden_states))
    if is_split(logits.weight):
        return sum_split(inputs, settings)
    return LinearCrossEntropy.apply(chunked_cross_entropy, *inputs, *settings, needed(inputs))


@torch.compiler.disable  # processes talk to each other within
def sum_split(inputs, settings):
    """The same where the processes hold some rows of the projection each."""
    words = SplitVocabulary(inputs[1].device_mesh, len(inputs[1]))
    inputs = own_part(*inputs)

    def compute(*arguments):
        return cross_entropy_by_chunks(words, *arguments)

    return LinearCrossEntropy.apply(compute, *inputs, *settings, needed(inputs))


def needed(inputs):
    """By which of them the gradient is wanted."""
    is_learning = torch.is_grad_enabled()
    return [is_learning and tensor is not None and tensor.requires_grad for tensor in inputs]


def product_dtype(hidden_states):
    """What a linear layer would compute in; on a CPU half precision is slow besides inexact."""
    device = hidden_states.device.type
    is_cast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if is_cast else hidden_states.dtype
    return torch.promote_types(dtype, torch.float32) if device == "cpu" else dtype


class LinearCrossEntropy(torch.autograd.Function):
    """The gradients are made on the way forward, where the logits are at hand; the way back scales
    them in place and can therefore be gone once."""

    @staticmethod
    def forward(ctx, compute, *arguments):
        total, *gradients = compute(*arguments)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, scale):
        scaled = (
            gradient.mul_(scale) if needed else None
            for gradient, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[1:4], strict=True)
        )
        return None, *scaled, None, None, None, None, None, None


def unused_name():
    """This file may be loaded beside the package's own copy; each has an operation of its own."""
    name = "chunked_cross_entropy"
    while hasattr(torch.ops.tformer, name):
        name += "_again"
    return f"tformer::{name}"


# One opaque operation to torch.compile: the loop below would be compiled anew for each length.
@torch.library.custom_op(
    unused_name(),
    mutates_args=(),
    schema="(Tensor hidden_states, Tensor weight, Tensor? bias, Tensor labels, int ignore_index, "
    "float label_smoothing, float z_loss, ScalarType dtype, bool[] needed) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def chunked_cross_entropy(
    hidden_states, weight, bias, labels, ignore_index, label_smoothing, z_loss, dtype, needed
):
    """`cross_entropy_by_chunks` where this process has all words."""
    return cross_entropy_by_chunks(
        WholeVocabulary(len(weight)),
        *(hidden_states, weight, bias, labels),
        *(ignore_index, label_smoothing, z_loss, dtype, needed),
    )


@chunked_cross_entropy.register_fake
def describe_results(
    hidden_states, weight, bias, labels, ignore_index, label_smoothing, z_loss, dtype, needed
):
    exact = torch.promote_types(dtype, torch.float32)
    inputs = (hidden_states, weight, bias)
    gradients = zeros_like_needed(inputs, needed, exact)
    return hidden_states.new_zeros((), dtype=exact), *as_stored(gradients, inputs)


def cross_entropy_by_chunks(
    words, hidden_states, weight, bias, labels, ignore_index, label_smoothing, z_loss, dtype, needed
):
    """The sum of the cross entropies, and its gradients by hidden states, weight and bias.

    Products are taken in `dtype`, all sums in float32 at least. What is not needed is empty.
    """
    exact = torch.promote_types(dtype, torch.float32)
    total = hidden_states.new_zeros((), dtype=exact)
    by_states, by_weight, by_bias = zeros_like_needed((hidden_states, weight, bias), needed, exact)
    with torch.autocast(hidden_states.device.type, enabled=False):
        table = weight.to(dtype)
        offset = None if bias is None else bias.to(dtype)
        buffer = hidden_states.new_empty(min(CHUNK_TOKENS, len(labels)), len(table), dtype=exact)
        for tokens in chunks(labels, ignore_index):
            states = hidden_states[tokens].to(dtype)
            logits = project_into(states, table, offset, buffer[: len(states)])
            total += turn_into_gradients(
                words, logits, labels[tokens], ignore_index, label_smoothing, z_loss
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


def zeros_like_needed(tensors, needed, dtype):
    """Where the gradients are summed up; what is not needed, or is not there, is empty."""
    return [
        tensors[0].new_zeros(tensor.shape if is_needed else 0, dtype=dtype)
        for tensor, is_needed in zip(tensors, needed, strict=True)
    ]


def as_stored(gradients, tensors):
    return [
        gradient if tensor is None else gradient.to(tensor.dtype)
        for gradient, tensor in zip(gradients, tensors, strict=True)
    ]


def chunks(labels, ignore_index):
    """Which tokens to take together. Where asking costs no wait, ignored ones are not computed."""
    if labels.device.type == "cpu" and not (counted := labels != ignore_index).all():
        return counted.nonzero().flatten().split(CHUNK_TOKENS)
    return [slice(start, start + CHUNK_TOKENS) for start in range(0, len(labels), CHUNK_TOKENS)]


def turn_into_gradients(words, logits, labels, ignore_index, label_smoothing, z_loss):
    """The summed loss of some tokens, whose logits are overwritten with its gradient by them."""
    is_counted = (labels != ignore_index)[:, None]
    counted = is_counted.to(logits.dtype)
    labels, is_here = words.place(labels[:, None], is_counted)
    losses = (label_smoothing - 1) * words.total(logits.gather(1, labels).where(is_here, 0))
    if label_smoothing:
        losses -= label_smoothing / words.size * words.total(logits.sum(-1, keepdim=True))
    largest = words.largest(logits.amax(-1, keepdim=True))
    sums = words.total(logits.sub_(largest).exp_().sum(-1, keepdim=True))
    log_sums = largest + sums.log()
    losses += log_sums + z_loss * log_sums.square()

    logits.mul_(counted * (1 + 2 * z_loss * log_sums) / sums)  # softmax, zero where ignored
    if label_smoothing:
        logits.sub_(counted * (label_smoothing / words.size))
    logits.scatter_add_(1, labels, is_here.to(logits.dtype) * (label_smoothing - 1))
    return losses.where(is_counted, 0).sum()


def project_into(states, table, offset, out):
    """A linear layer that writes to `out`: new memory for each chunk would cost as much again."""
    if out.dtype != states.dtype:
        return out.copy_(nn.functional.linear(states, table, offset))
    torch.mm(states, table.t(), out=out)
    return out if offset is None else out.add_(offset)


def add_product(total, left, right):
    """total += left @ right, whose sums are kept in the precision of `total`."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
