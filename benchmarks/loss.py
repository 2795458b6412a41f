"""The last layer of training: projection to the vocabulary and cross entropy, in one."""

import torch
from torch import nn
from torch.nn import functional

from hf_tformer.model import losses

from .measure import OURS, Absent, Run, Workload

FULL, TORCH = "full logits", "torch.nn.functional.linear_cross_entropy"
IGNORED = -100


def loss(settings):
    """Forward and backward from the hidden states; the gradients of both operands are compared."""
    for tokens, hidden, vocab_size, memory_floor in (
        (4096, 512, 32000, 1 / 0.35),
        (2048, 1024, 128000, 1 / 0.5),
    ):
        shape = settings.pick((tokens, hidden, vocab_size), (64, 16, vocab_size // 128))
        yield Workload(
            "{} tokens, hidden size {}, vocabulary {}".format(*shape),
            {
                OURS: lambda shape=shape: step(ours, shape, settings),
                FULL: lambda shape=shape: step(full_logits, shape, settings),
                TORCH: lambda shape=shape: step(torchs_function(), shape, settings),
            },
            {FULL: 1.0},
            {FULL: memory_floor},
            work={"flops": 6 * shape[0] * shape[1] * shape[2]},
            measures=("seconds", "MiB"),
        )


def full_logits(hidden, projection, labels):
    return functional.cross_entropy(projection(hidden), labels, ignore_index=IGNORED)


def ours(hidden, projection, labels):
    return losses.language_model_loss(losses.Unprojected(hidden, projection), labels)


def torchs_function():
    if not hasattr(functional, "linear_cross_entropy"):
        raise Absent("this torch does not have it")
    return lambda hidden, projection, labels: functional.linear_cross_entropy(
        hidden, projection.weight, labels, options=nn.LinearCrossEntropyOptions()
    )


def step(function, shape, settings):
    tokens, width, vocab_size = shape
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        nn.Parameter(
            (torch.randn(size, width, generator=generator) * scale).to(
                settings.device, settings.torch_dtype
            )
        )
        for size, scale in ((tokens, 1.0), (vocab_size, 3 / width**0.5))
    )
    projection = nn.Linear(width, vocab_size, bias=False, device="meta")
    projection.weight = weight
    labels = torch.randint(vocab_size, (tokens,), generator=generator).to(settings.device)

    def call():
        hidden.grad = weight.grad = None
        value = function(hidden, projection, labels)
        value.backward()
        return value.detach()

    def outcome(value):
        return {
            "loss": value,
            "gradient of the hidden states": hidden.grad / hidden.grad.abs().max(),
            "gradient of the weights": weight.grad / weight.grad.abs().max(),
        }

    return Run(call, outcome)
