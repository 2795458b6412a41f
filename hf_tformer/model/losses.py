# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The training losses. Label smoothing and z-loss are here, so that every trainer applies the same.

By default, training does not hold all logits, often the largest tensor of a step: the head is
called for a few tokens at a time, once for the loss and once more for its gradients. Where
hf_tformer is installed, an implementation that calls it only once takes its place.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .positions import is_padding_mask

CHUNK_TOKENS = 512  # fewer slow fast/losses.py down, more cost memory; sum_by_chunks has a quarter


class Unprojected(NamedTuple):
    """Logits that have not been computed yet: the hidden states, and the head to call."""

    hidden_states: Tensor
    head: nn.Module


def language_model_loss(
    logits: Tensor | Unprojected,
    labels: Tensor,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    **kwargs: object,
) -> Tensor:
    """Cross entropy of each position with its own label, as a mean over the labels that count.

    `num_items_in_batch` replaces their number where gradients are accumulated.
    """
    add_up = sum_by_chunks if isinstance(logits, Unprojected) else sum_logits
    labels = labels.flatten()
    total = add_up(logits, labels, ignore_index, label_smoothing, z_loss)
    count = (labels != ignore_index).sum() if num_items_in_batch is None else num_items_in_batch
    # A batch without a single label has loss 0, not NaN: it must not end a training run.
    return total / torch.as_tensor(count, device=total.device).clamp(min=1)


def causal_language_model_loss(
    logits: Tensor | Unprojected,
    labels: Tensor | None,
    shift_labels: Tensor | None = None,
    ignore_index: int = -100,
    **kwargs: object,
) -> Tensor:
    """Cross entropy where position t predicts token t + 1; `shift_labels` are shifted already."""
    if shift_labels is None:
        # trf-ignore: TRF053 (this is the loss function, the one place that shifts)
        shift_labels = nn.functional.pad(labels[..., 1:], (0, 1), value=ignore_index)
    return language_model_loss(logits, shift_labels, ignore_index=ignore_index, **kwargs)


def sum_logits(
    logits: Tensor, labels: Tensor, ignore_index: int, label_smoothing: float, z_loss: float
) -> Tensor:
    """Sum the cross entropies over the labels that count."""
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


def sum_by_chunks(
    unprojected: Unprojected, labels: Tensor, ignore_index: int, *settings: float
) -> Tensor:
    """Sum the same, a few tokens at a time; logits are computed again for the gradients."""

    def sum_chunk(hidden_states: Tensor, labels: Tensor) -> Tensor:
        return sum_logits(unprojected.head(hidden_states), labels, ignore_index, *settings)

    hidden_states = unprojected.hidden_states.flatten(0, -2)
    size = max(CHUNK_TOKENS // 4, 1)  # of each chunk's logits three copies live at once
    chunks = zip(hidden_states.split(size), labels.split(size), strict=True)
    options = {"use_reentrant": False, "preserve_rng_state": False}  # no random numbers in a head
    return torch.stack([checkpoint(sum_chunk, *chunk, **options) for chunk in chunks]).sum()


def needs_logits(model: nn.Module, labels: Tensor | None, return_logits: bool | None) -> bool:
    """Return whether all logits have to be computed; training needs none unless asked for."""
    if return_logits is None:
        return_logits = not model.training or model.config.return_logits_in_training
    is_own_loss = model.loss_function in (language_model_loss, causal_language_model_loss)
    is_capped = getattr(model.config, "final_logit_softcapping", None) is not None
    needed = labels is None or return_logits or is_capped
    return needed or not is_own_loss or not may_be_called_by_chunks(model.lm_head)


def may_be_called_by_chunks(head: nn.Module) -> bool:
    """Return whether the head is a linear layer of torch, and not an adapted or sharded one."""
    is_linear = type(head) is nn.Linear and type(head.weight) is nn.Parameter
    return is_linear and "forward" not in vars(head)


def compute_loss(
    model: nn.Module, hidden_states: Tensor, logits: Tensor | None, labels: Tensor, kwargs: dict
) -> Tensor:
    """Call the loss function; the configuration's settings hold unless the call gives its own."""
    names = ("vocab_size", "label_smoothing", "z_loss")
    settings = {**{name: getattr(model.config, name) for name in names}, **kwargs}
    logits = Unprojected(hidden_states, model.lm_head) if logits is None else logits
    return model.loss_function(logits=logits, labels=labels, **settings)


def ignore_padding(
    labels: Tensor, attention_mask: Tensor | dict | None, kwargs: dict, shift: int
) -> Tensor:
    """Return `labels` [batch, seq] with ignore_index where padding would have to predict them.

    The token `shift` places earlier predicts a label; at padding its hidden state depends on the
    backend. So a batch has one loss, on whichever side it is padded.
    """
    if not is_padding_mask(attention_mask):
        return labels
    predicts = attention_mask[:, -labels.shape[1] :].to(labels.device)
    counted, ignored = labels.clone(), predicts[:, : predicts.shape[1] - shift] == 0
    counted[:, shift:].masked_fill_(ignored, kwargs.get("ignore_index", -100))
    return counted
