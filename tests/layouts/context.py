"""Training where each process holds a part of every text, as Trainer and accelerate hand it out.

torch's context_parallel() replaces scaled_dot_product_attention by one that passes keys and values
around. It has no kernel for a CPU; here a function takes its place that gathers them. What comes
before is accelerate's own, and what torch would hand out: each process gets a piece from the front
and one from the back, so that all have the same to do.
"""

from unittest.mock import patch

import torch
import torch.distributed as dist
from accelerate.big_modeling import _attach_context_parallel_hooks
from torch import nn

WHOLE = nn.functional.scaled_dot_product_attention


def train_in_context(layout, head, steps, folder):
    """As training.train(): the losses of all parts add up, and so do the gradients."""
    model = head.model_class.from_pretrained(folder).train()
    _attach_context_parallel_hooks(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    batches, losses, norms = head.batches(layout.lengths), [], []
    for step in range(steps):
        batch = batches[step % len(batches)]
        whole = head.count(head.family, batch)
        with patch.object(nn.functional, "scaled_dot_product_attention", attend_to_all):
            loss = model(**part_of(batch), num_items_in_batch=whole).loss
            loss.backward()
        losses.append(loss.detach())
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        norms.append(nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        optimizer.step()
        optimizer.zero_grad()
    trace = {"losses": torch.stack(losses), "norms": torch.stack(norms)}
    dist.all_reduce(trace["losses"])
    return model, trace


def part_of(batch):
    """What this process is given of each text; labels are shifted before the text is divided."""
    ids, labels = batch["input_ids"], batch["labels"]
    inputs = {
        "input_ids": ids,
        "labels": labels,
        "shift_labels": nn.functional.pad(labels[:, 1:], (0, 1), value=-100),
        "position_ids": torch.arange(ids.shape[1]).expand_as(ids),
    }
    own = places(ids.shape[1])[dist.get_rank()]
    return {name: value[:, own].contiguous() for name, value in inputs.items()}


def places(length):
    """Where the tokens of each process stand: a piece from the front and one from the back."""
    count = dist.get_world_size()
    pieces = torch.arange(length).chunk(2 * count)
    return [torch.cat((pieces[i], pieces[-1 - i])) for i in range(count)]


class Gather(torch.autograd.Function):
    """The parts [batch, heads, part, dim] of all processes, one behind the other."""

    @staticmethod
    def forward(ctx, own):
        parts = [torch.empty(own.shape, dtype=own.dtype) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts, dim=2)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size(), dim=2)[dist.get_rank()]


def attend_to_all(query, key, value, attn_mask=None, is_causal=False, **kwargs):
    """Of a part of the queries to all keys; `is_causal` is about the whole text."""
    assert attn_mask is None
    assert is_causal
    keys, values = Gather.apply(key), Gather.apply(value)
    everywhere = places(keys.shape[2])
    mask = everywhere[dist.get_rank()][:, None] >= torch.cat(everywhere)
    return WHOLE(query, keys, values, attn_mask=mask, **kwargs)
