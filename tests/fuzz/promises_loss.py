"""Promises about the loss."""

from unittest import mock

import torch

from hf_tformer.model import losses

from .building import PromiseError, as_batch, build, check_same, plain, texts
from .cases import BACKENDS, DECODERS, Case, cases, loss_options

IGNORED = -100


def labelled(case, sides=None):
    """A batch with its labels: none at padding, and some others left out at random."""
    parts = texts(case)
    batch, _ = as_batch(case, *parts, sides=sides)
    prefix = "decoder_" if case.family == "seq2seq" else ""
    mask = batch[f"{prefix}attention_mask"].bool()
    labels = torch.full_like(mask, IGNORED, dtype=torch.long)
    labels[mask] = torch.cat(labels_of_texts(case, parts))
    return batch | {"labels": labels}


def labels_of_texts(case, parts):
    """The decoder is to repeat its texts, an encoder-decoder to write something of its own."""
    generator = torch.Generator().manual_seed(case.seed + 2)
    share, limit = case.options.get("ignored", 0.0), case.config["vocab_size"]
    labels = [torch.tensor(row) for row in parts[-1]]
    if case.family == "seq2seq":
        labels = [torch.randint(limit, row.shape, generator=generator) for row in labels]
    return [
        row.masked_fill(torch.rand(row.shape, generator=generator) < share, IGNORED)
        for row in labels
    ]


def settings(case):
    return {name: value for name, value in case.options.items() if name != "ignored"}


def plain_loss(case, model, rows_of_logits, rows_of_labels):
    """The loss of each text by itself, spelled out, and put together."""
    total, count = 0.0, 0
    smoothing = case.options.get("label_smoothing", model.config.label_smoothing)
    z_loss = case.options.get("z_loss", model.config.z_loss)
    for logits, labels in zip(rows_of_logits, rows_of_labels, strict=True):
        if case.family in DECODERS:
            logits, labels = logits[:-1], labels[1:]
        counted = labels != IGNORED
        logits, labels = logits[counted], labels[counted]
        scores = logits.log_softmax(-1)
        losses = -(1 - smoothing) * scores.gather(1, labels[:, None]).squeeze(1)
        losses = losses - smoothing * scores.mean(-1) + z_loss * logits.logsumexp(-1).square()
        total, count = total + losses.sum(), count + len(labels)
    return total / max(1, case.options.get("num_items_in_batch", count))


lean_cases = cases(dropout=False, options=loss_options)


def check_lean_loss(case: Case):
    """The loss that never holds all logits, and its gradients, are those of the plain logits."""
    batch = labelled(case)
    labels = batch.pop("labels")
    model = build(case).train()
    prefix = "decoder_" if case.family == "seq2seq" else ""
    real = batch[f"{prefix}attention_mask"].bool()
    with plain():
        logits = model(**batch, use_cache=False).logits
    rows = zip(logits, labels, real, strict=True)
    expected = plain_loss(
        case, model, *zip(*((a[keep], b[keep]) for a, b, keep in rows), strict=True)
    )
    slopes = gradients(model, expected)
    with mock.patch.object(losses, "CHUNK_TOKENS", 5):
        actual = model(**batch, labels=labels, return_logits=False, **settings(case))
    is_bounded = case.config.get("final_logit_softcapping") is not None  # then they are made
    if actual.logits is not None and not is_bounded:
        raise PromiseError("logits were returned where none were asked for")
    check_same(actual.loss.detach(), expected.detach(), "lean loss and plain loss")
    check_same(gradients(model, actual.loss), slopes, "gradients of the lean and the plain loss")


def gradients(model, loss):
    model.zero_grad()
    if loss.requires_grad:
        loss.backward()
    parts = [
        (torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()
    ]
    return torch.cat(parts)


checkpointed_cases = cases(dropout=False, options=loss_options)


def check_checkpointed(case: Case):
    """Layers that are computed twice to save memory have the gradients of those computed once."""
    batch, model = labelled(case), build(case).train()
    model.enable_input_require_grads()  # for the reentrant way, which asks for it
    expected = model(**batch, **settings(case)).loss
    slopes = gradients(model, expected)
    model.gradient_checkpointing_enable({"use_reentrant": bool(case.seed % 2)})
    actual = model(**batch, **settings(case)).loss
    check_same(actual.detach(), expected.detach(), "loss of layers computed twice")
    check_same(gradients(model, actual), slopes, "gradients of layers computed twice")


one_loss_cases = cases(backends=BACKENDS, steady=True, dropout=False, options=loss_options)


def check_one_loss(case: Case):
    """One batch has one loss: in training and evaluation, on every backend, padded anywhere."""
    model, parts = build(case), texts(case)
    labels = labels_of_texts(case, parts)
    with torch.no_grad(), plain():
        logits, reference = [], build(case, "eager")
        for row in zip(*parts, strict=True):
            alone, _ = as_batch(case, *([text] for text in row))
            logits.append(reference(**alone).logits[0])
    expected = plain_loss(case, model, logits, labels)
    batch = labelled(case)
    for is_training in (False, True):
        with torch.no_grad():  # a CPU has no backward pass of flex attention
            loss = model.train(is_training)(**batch, **settings(case)).loss
        check_same(loss, expected, f"loss, {'training' if is_training else 'evaluation'}")
