"""The tutorial GPT as its code is: Llama's blocks, but no positions of any kind."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .parts import RMSNorm, attend, later, repeat_heads, split_heads

EPS = 1e-6


class Attention(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.size = config.d_model // config.n_heads
        self.q_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.k_proj = nn.Linear(config.d_model, config.kv_dim, bias=False)
        self.v_proj = nn.Linear(config.d_model, config.kv_dim, bias=False)
        self.o_proj = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        projected = (self.q_proj(states), self.k_proj(states), self.v_proj(states))
        query, key, value = (split_heads(x, x.shape[-1] // self.size) for x in projected)
        times = query.shape[1] // key.shape[1]
        key, value = repeat_heads(key, times), repeat_heads(value, times)
        return self.o_proj(attend(query, key, value, later(states)))


class FeedForward(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.up_proj = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.down_proj = nn.Linear(config.d_ff, config.d_model, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(states)) * self.up_proj(states))


class Block(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.attn_norm, self.ffn_norm = (RMSNorm(config.d_model, EPS) for _ in range(2))
        self.attn, self.ffn = Attention(config), FeedForward(config)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = states + self.attn(self.attn_norm(states))
        return states + self.ffn(self.ffn_norm(states))


class TutorialGPT(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.token_emb = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = RMSNorm(config.d_model, EPS)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.lm_head.weight = self.token_emb.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = self.token_emb(ids)
        for layer in self.layers:
            states = layer(states)
        return self.lm_head(self.norm(states))
