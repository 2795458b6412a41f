"""Llama as Meta ships it: rotary positions pair neighbouring dimensions as complex numbers."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .parts import RMSNorm, attend, later, repeat_heads, rotary_angles, split_heads


def rotate_neighbours(states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotate pairs (0, 1), (2, 3)... of [batch, heads, seq, size] as complex numbers."""
    pairs = torch.view_as_complex(states.unflatten(-1, (-1, 2)).contiguous())
    rotated = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(rotated).flatten(-2)


class Attention(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.n_heads, config.n_kv_heads
        size = config.dim // self.heads
        self.wq = nn.Linear(config.dim, self.heads * size, bias=False)
        self.wk = nn.Linear(config.dim, self.kv_heads * size, bias=False)
        self.wv = nn.Linear(config.dim, self.kv_heads * size, bias=False)
        self.wo = nn.Linear(self.heads * size, config.dim, bias=False)

    def forward(self, states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        query = rotate_neighbours(split_heads(self.wq(states), self.heads), angles)
        key = rotate_neighbours(split_heads(self.wk(states), self.kv_heads), angles)
        value = split_heads(self.wv(states), self.kv_heads)
        key, value = (repeat_heads(x, self.heads // self.kv_heads) for x in (key, value))
        return self.wo(attend(query, key, value, later(states)))


class FeedForward(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.hidden_dim, bias=False)
        self.w2 = nn.Linear(config.hidden_dim, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.hidden_dim, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(states)) * self.w3(states))


class Block(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps)

    def forward(self, states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        states = states + self.attention(self.attention_norm(states), angles)
        return states + self.feed_forward(self.ffn_norm(states))


class MetaLlama(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = RMSNorm(config.dim, config.norm_eps)
        self.output = nn.Linear(config.dim, config.vocab_size, bias=False)
        if config.tied:
            self.output.weight = self.tok_embeddings.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        config = self.config
        size = config.dim // config.n_heads
        # The original length of Llama 3.1 is 8192; only the factor differs between sizes.
        scaling = (config.rope_scaling_factor, 1.0, 4.0, 8192) if config.use_scaled_rope else None
        angles = rotary_angles(ids.shape[1], size, config.rope_theta, scaling)
        states = self.tok_embeddings(ids)
        for layer in self.layers:
            states = layer(states, angles)
        return self.output(self.norm(states))
