"""Training steps of the decoder-only family, and the loss alone: forward and backward."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from hf_tformer.model import losses

from . import engines
from .decoding import llama_pair, prompt
from .measure import OURS, Contestants, Run, Settings, Workload, Workloads
from .peers import Pair

FULL, TORCH = "full logits", "torch.nn.functional.linear_cross_entropy"
IGNORED = -100
Loss = Callable[[torch.Tensor, nn.Linear, torch.Tensor], torch.Tensor]


def training(settings: Settings) -> Workloads:
    """Train on 4096 tokens; a large vocabulary makes the loss most of the memory, and slow."""
    rows, length = settings.pick((8, 512), (2, 12))
    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8}
    sizes["rms_norm_eps"] = 1e-9  # x-transformers has none, and embeddings are small
    for vocab_size, layers, floor, memory_floor in (
        (32000, 8, 1.25, 0.0),
        (128000, 6, 1.4, 1 / 0.4),
    ):
        changes = {**sizes, "vocab_size": vocab_size, "num_hidden_layers": layers}
        pair = llama_pair(settings, 19, **settings.pick(changes, {"vocab_size": vocab_size // 128}))
        ids = prompt(pair, rows, length)["input_ids"]
        yield Workload(
            f"vocabulary {pair.sizes['vocab_size']}, {rows} × {length} tokens",
            contestants(pair, ids),
            {pair.name: floor},
            {pair.name: memory_floor},
            work={"flops": 6 * matrix_parameters(pair.sizes) * ids.numel()},
            measures=("seconds", "MiB"),
        )


def contestants(pair: Pair, ids: torch.Tensor) -> Contestants:
    def in_litgpt(llama: PreTrainedModel) -> Run:
        return step_of(engines.litgpt_from(llama), "transformer.wte", ids)

    def in_x_transformers(llama: PreTrainedModel) -> Run:
        return step_of(engines.x_transformers_from(llama), "token_emb.emb", ids)

    return {
        **pair.contestants(step, ids),
        f"{pair.name}, compiled": pair.contestant("compiled", step, ids),
        "litgpt": pair.contestant("theirs", in_litgpt),
        "x-transformers": pair.contestant("theirs", in_x_transformers),
    }


def matrix_parameters(sizes: dict[str, Any]) -> int:
    """Count the parameters of matrix products: layers, and the tied table once, as the head."""
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    heads, kv_heads = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    head_dim = sizes.get("head_dim", hidden // heads)
    layer = 2 * hidden * head_dim * (heads + kv_heads) + 3 * hidden * inner
    return layer * sizes["num_hidden_layers"] + sizes["vocab_size"] * hidden


def step(model: PreTrainedModel, ids: torch.Tensor) -> Run:
    """Forward and backward on all tokens; the outcome is the loss and a summary of gradients."""
    return measured_step(
        model, model.get_input_embeddings(), lambda: model(input_ids=ids, labels=ids).loss
    )


def step_of(model: nn.Module, embeddings: str, ids: torch.Tensor) -> Run:
    """Measure that step of a model which gives logits and leaves the loss to its user."""

    def loss() -> torch.Tensor:
        logits = model(ids[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return measured_step(model, model.get_submodule(embeddings), loss)


def measured_step(
    model: nn.Module, embeddings: nn.Module | None, compute_loss: Callable[[], torch.Tensor]
) -> Run:
    """Return a forward and a backward pass; the gradient of `embeddings` is compared as well."""
    model.train()

    def call() -> torch.Tensor:
        model.zero_grad()
        loss = compute_loss()
        loss.backward()
        return loss.detach()

    def outcome(loss: torch.Tensor) -> dict[str, torch.Tensor]:
        gradients = [tensor.grad for tensor in model.parameters() if tensor.requires_grad]
        norm = torch.stack([g.norm() for g in gradients]).norm()
        found = {"loss": loss, "norm of all gradients": norm}
        if embeddings is not None:
            found["gradient of the embeddings"] = of_one(embeddings.weight.grad)
        return found

    return Run(call, outcome)


def of_one(tensor: torch.Tensor) -> torch.Tensor:
    """Scale a gradient so that its largest entry is one, and margins mean the same for each."""
    return tensor / tensor.abs().max()


def loss(settings: Settings) -> Workloads:
    """Project, compute the loss, and go back; the gradients of both operands are compared."""
    for tokens, hidden, vocab_size, memory_floor in (
        (4096, 512, 32000, 1 / 0.35),
        (2048, 1024, 128000, 1 / 0.5),
    ):
        shape = settings.pick((tokens, hidden, vocab_size), (64, 16, vocab_size // 128))
        yield Workload(
            "{} tokens, hidden size {}, vocabulary {}".format(*shape),
            {
                OURS: partial(loss_step, ours, shape),
                FULL: partial(loss_step, full_logits, shape),
                TORCH: partial(loss_step, torchs_function, shape),
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


def loss_step(function: Loss, shape: tuple[int, int, int]) -> Run:
    tokens, width, vocab_size = shape
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        nn.Parameter(torch.randn(size, width, generator=generator) * scale)
        for size, scale in ((tokens, 1.0), (vocab_size, 3 / width**0.5))
    )
    projection = nn.Linear(width, vocab_size, bias=False, device="meta")
    projection.weight = weight
    labels = torch.randint(vocab_size, (tokens,), generator=generator)

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
