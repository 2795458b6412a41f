"""Training steps of the decoder-only family: forward, loss and backward."""

import torch
from torch.nn import functional

from . import engines
from .decoding import llama_pair
from .measure import OURS, Run, Workload
from .peers import random_ids


def training(settings):
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
        ids = random_ids(pair.sizes["vocab_size"], rows, length, settings)
        yield Workload(
            f"vocabulary {pair.sizes['vocab_size']}, {rows} × {length} tokens",
            contestants(pair, ids, settings),
            {"LlamaForCausalLM": floor},
            {"LlamaForCausalLM": memory_floor},
            work={"flops": 6 * parameters(pair.sizes) * ids.numel()},
            measures=("seconds", "MiB"),
        )


def contestants(pair, ids, settings):
    def tuned():
        return step(pair.compiled, ids)

    return {
        OURS: lambda: step(pair.ours, ids),
        "LlamaForCausalLM": lambda: step(pair.theirs, ids),
        "LlamaForCausalLM, compiled": tuned,
        "litgpt": lambda: step_of(engines.litgpt_from(pair.theirs), "transformer.wte", ids),
        "x-transformers": lambda: step_of(
            engines.x_transformers_from(pair.theirs), "token_emb.emb", ids
        ),
    }


def parameters(sizes):
    """Those that take part in matrix products: the layers, and the tied table once, as the head."""
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    heads, kv_heads = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    head_dim = sizes.get("head_dim", hidden // heads)
    layer = 2 * hidden * head_dim * (heads + kv_heads) + 3 * hidden * inner
    return layer * sizes["num_hidden_layers"] + sizes["vocab_size"] * hidden


def step(model, ids):
    """Forward and backward on all tokens; the outcome is the loss and what the gradients are."""
    return measured_step(
        model, model.get_input_embeddings(), lambda: model(input_ids=ids, labels=ids).loss
    )


def step_of(model, embeddings, ids):
    """The same with a model that gives logits and leaves the loss to its user."""

    def loss():
        logits = model(ids[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return measured_step(model, model.get_submodule(embeddings), loss)


def measured_step(model, embeddings, compute_loss):
    model.train()

    def call():
        model.zero_grad()
        loss = compute_loss()
        loss.backward()
        return loss.detach()

    def outcome(loss):
        gradients = [tensor.grad for tensor in model.parameters() if tensor.requires_grad]
        table = embeddings.weight.grad
        return {
            "loss": loss,
            "norm of all gradients": torch.stack([g.norm() for g in gradients]).norm(),
            "gradient of the embeddings": table / table.abs().max(),
        }

    return Run(call, outcome)
