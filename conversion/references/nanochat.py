"""nanochat before 2026: norms without weights, relu², and a rotation in the opposite direction."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .llms_from_scratch import rotate_halves
from .parts import attend, later, repeat_heads, rotary_angles, split_heads

EPSILON = torch.finfo(torch.float32).eps  # what torch's rms_norm adds where nothing is said
BASE, CAP = 10000.0, 15.0


def norm(states: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(states, states.shape[-1:], eps=EPSILON)


class Attention(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.heads, self.kv_heads, width = config.n_head, config.n_kv_head, config.n_embd
        size = width // self.heads
        self.c_q = nn.Linear(width, width, bias=False)
        self.c_k = nn.Linear(width, self.kv_heads * size, bias=False)
        self.c_v = nn.Linear(width, self.kv_heads * size, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)

    def forward(self, states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        query = norm(rotate_halves(split_heads(self.c_q(states), self.heads), -angles))
        key = norm(rotate_halves(split_heads(self.c_k(states), self.kv_heads), -angles))
        value = split_heads(self.c_v(states), self.kv_heads)
        key, value = (repeat_heads(x, self.heads // self.kv_heads) for x in (key, value))
        return self.c_proj(attend(query, key, value, later(states)))


class MLP(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, config.n_inner, bias=False)
        self.c_proj = nn.Linear(config.n_inner, config.n_embd, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.c_proj(F.relu(self.c_fc(states)).square())


class Block(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.attn, self.mlp = Attention(config), MLP(config)

    def forward(self, states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        states = states + self.attn(norm(states), angles)
        return states + self.mlp(norm(states))


class NanoChat(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.rows, config.n_embd),
                "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.rows, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        config = self.config
        angles = rotary_angles(ids.shape[1], config.n_embd // config.n_head, BASE)
        states = norm(self.transformer["wte"](ids))
        for block in self.transformer["h"].children():
            states = block(states, angles)
        logits = self.lm_head(norm(states))[..., : config.vocab_size]
        return CAP * torch.tanh(logits / CAP)
