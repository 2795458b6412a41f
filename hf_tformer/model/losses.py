# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The training losses: label smoothing and z-loss live here, so that every wrapper trains with the
same ones."""

import torch
from torch import nn


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
    # In float32 at least: half precision would round away most of what a large vocabulary adds up.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(
        0, -2
    )  # [batch, seq, vocab] → [tokens, vocab]
    labels = labels.flatten().to(logits.device).long()
    total = nn.functional.cross_entropy(
        logits, labels, ignore_index=ignore_index, reduction="sum", label_smoothing=label_smoothing
    )
    counted = labels != ignore_index
    if z_loss:
        total = total + z_loss * logits.logsumexp(-1).square().masked_fill(~counted, 0).sum()
    count = counted.sum() if num_items_in_batch is None else num_items_in_batch
    # A batch without a single label has loss 0, not NaN: it must not end a training run.
    return total / torch.as_tensor(count, device=total.device).clamp(min=1)


def loss_arguments(config, kwargs):
    """What the configuration adds to the loss, unless the call says otherwise."""
    settings = {"label_smoothing": config.label_smoothing, "z_loss": config.z_loss}
    return {"vocab_size": config.vocab_size, **settings, **kwargs}


def causal_language_model_loss(logits, labels, shift_labels=None, ignore_index=-100, **kwargs):
    """The same where position t predicts token t + 1; `shift_labels` are shifted already."""
    if shift_labels is None:
        # trf-ignore: TRF053 (this is the loss function, the one place that shifts)
        shift_labels = nn.functional.pad(labels[..., 1:], (0, 1), value=ignore_index)
    return language_model_loss(logits, shift_labels, ignore_index=ignore_index, **kwargs)


__all__ = ["causal_language_model_loss", "language_model_loss", "loss_arguments"]
