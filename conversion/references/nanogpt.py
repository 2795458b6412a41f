"""nanoGPT: GPT-2 whose projections are plain Linear layers, with or without biases."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .parts import attend, later, split_heads

ACTIVATIONS = {"gelu": F.gelu, "gelu_new": lambda states: F.gelu(states, approximate="tanh")}


class Norm(nn.Module):
    def __init__(self, size: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(states, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.heads = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        parts = self.c_attn(states).chunk(3, dim=-1)
        query, key, value = (split_heads(x, self.heads) for x in parts)
        return self.c_proj(attend(query, key, value, later(states)))


class MLP(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, config.n_inner, bias=config.bias)
        self.c_proj = nn.Linear(config.n_inner, config.n_embd, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.c_proj(self.activation(self.c_fc(states)))


class Block(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.ln_1 = Norm(config.n_embd, config.bias)
        self.attn = Attention(config)
        self.ln_2 = Norm(config.n_embd, config.bias)
        self.mlp = MLP(config)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = states + self.attn(self.ln_1(states))
        return states + self.mlp(self.ln_2(states))


class NanoGPT(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        words = nn.Embedding(config.vocab_size, config.n_embd)
        self.transformer = nn.ModuleDict(
            {
                "wte": words,
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
                "ln_f": Norm(config.n_embd, config.bias),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1])
        states = self.transformer["wte"](ids) + self.transformer["wpe"](positions)
        for block in self.transformer["h"].children():
            states = block(states)
        return self.lm_head(self.transformer["ln_f"](states))
