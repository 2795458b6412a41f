"""Training steps of the decoder-only family: forward, loss and backward."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from . import engines
from .decoding import llama_pair, prompt
from .measure import Contestants, Run, Settings, Workload, Workloads
from .peers import Pair


def training(settings: Settings) -> Workloads:
    """4096 tokens; with a large vocabulary most of the memory is the loss, and much of the time."""
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
    """The same step of a model that gives logits and leaves the loss to its user."""

    def loss() -> torch.Tensor:
        logits = model(ids[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return measured_step(model, model.get_submodule(embeddings), loss)


def measured_step(
    model: nn.Module, embeddings: nn.Module, compute_loss: Callable[[], torch.Tensor]
) -> Run:
    model.train()

    def call() -> torch.Tensor:
        model.zero_grad()
        loss = compute_loss()
        loss.backward()
        return loss.detach()

    def outcome(loss: torch.Tensor) -> dict[str, torch.Tensor]:
        gradients = [tensor.grad for tensor in model.parameters() if tensor.requires_grad]
        return {
            "loss": loss,
            "norm of all gradients": torch.stack([g.norm() for g in gradients]).norm(),
            "gradient of the embeddings": of_one(embeddings.weight.grad),
        }

    return Run(call, outcome)


def of_one(tensor: torch.Tensor) -> torch.Tensor:
    """Scale a gradient so that its largest entry is one, and margins mean the same for each."""
    return tensor / tensor.abs().max()
