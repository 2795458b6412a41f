"""The last layer of training: projection to the vocabulary and cross entropy, in one."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from hf_tformer.model import losses

from .measure import OURS, Run, Settings, Workload, Workloads
from .training import of_one

FULL, TORCH = "full logits", "torch.nn.functional.linear_cross_entropy"
IGNORED = -100
Loss = Callable[[torch.Tensor, nn.Linear, torch.Tensor], torch.Tensor]


def loss(settings: Settings) -> Workloads:
    """Forward and backward from the hidden states; the gradients of both operands are compared."""
    for tokens, hidden, vocab_size, memory_floor in (
        (4096, 512, 32000, 1 / 0.35),
        (2048, 1024, 128000, 1 / 0.5),
    ):
        shape = settings.pick((tokens, hidden, vocab_size), (64, 16, vocab_size // 128))
        yield Workload(
            "{} tokens, hidden size {}, vocabulary {}".format(*shape),
            {
                OURS: partial(step, ours, shape, settings),
                FULL: partial(step, full_logits, shape, settings),
                TORCH: partial(step, torchs_function, shape, settings),
            },
            {FULL: 1.0},
            {FULL: memory_floor},
            work={"flops": 6 * shape[0] * shape[1] * shape[2]},
            measures=("seconds", "MiB"),
        )


def full_logits(hidden: torch.Tensor, projection: nn.Linear, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(projection(hidden), labels, ignore_index=IGNORED)


def ours(hidden: torch.Tensor, projection: nn.Linear, labels: torch.Tensor) -> torch.Tensor:
    return losses.language_model_loss(losses.Unprojected(hidden, projection), labels)


def torchs_function(
    hidden: torch.Tensor, projection: nn.Linear, labels: torch.Tensor
) -> torch.Tensor:
    return functional.linear_cross_entropy(
        hidden, projection.weight, labels, options=nn.LinearCrossEntropyOptions()
    )


def step(function: Loss, shape: tuple[int, int, int], settings: Settings) -> Run:
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

    def call() -> torch.Tensor:
        hidden.grad = weight.grad = None
        value = function(hidden, projection, labels)
        value.backward()
        return value.detach()

    def outcome(value: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "loss": value,
            "gradient of the hidden states": of_one(hidden.grad),
            "gradient of the weights": of_one(weight.grad),
        }

    return Run(call, outcome)
