"""Llama as Meta ships it: rotary positions turn neighbouring numbers, taken as complex ones."""

import torch
from torch import nn
from torch.nn import functional as F

from .parts import attend, later, repeat_heads, rotary_angles, split_heads


def turn_neighbours(states, angles):
    """[batch, heads, seq, size]: (0, 1), (2, 3)... are complex numbers turned by their angle."""
    pairs = torch.view_as_complex(states.unflatten(-1, (-1, 2)).contiguous())
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.dim))
        self.eps = config.norm_eps

    def forward(self, states):
        return states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.kv_heads = config.n_heads, config.n_kv_heads
        size = config.dim // self.heads
        self.wq = nn.Linear(config.dim, self.heads * size, bias=False)
        self.wk = nn.Linear(config.dim, self.kv_heads * size, bias=False)
        self.wv = nn.Linear(config.dim, self.kv_heads * size, bias=False)
        self.wo = nn.Linear(self.heads * size, config.dim, bias=False)

    def forward(self, states, angles):
        query = turn_neighbours(split_heads(self.wq(states), self.heads), angles)
        key = turn_neighbours(split_heads(self.wk(states), self.kv_heads), angles)
        value = split_heads(self.wv(states), self.kv_heads)
        key, value = (repeat_heads(x, self.heads // self.kv_heads) for x in (key, value))
        return self.wo(attend(query, key, value, later(states)))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.hidden_dim, bias=False)
        self.w2 = nn.Linear(config.hidden_dim, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.hidden_dim, bias=False)

    def forward(self, states):
        return self.w2(F.silu(self.w1(states)) * self.w3(states))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = Norm(config)
        self.ffn_norm = Norm(config)

    def forward(self, states, angles):
        states = states + self.attention(self.attention_norm(states), angles)
        return states + self.feed_forward(self.ffn_norm(states))


class MetaLlama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = Norm(config)
        self.output = nn.Linear(config.dim, config.vocab_size, bias=False)
        if config.tied:
            self.output.weight = self.tok_embeddings.weight

    def forward(self, ids):
        config = self.config
        size = config.dim // config.n_heads
        # Llama 3.1 was trained on 8192 tokens first; only the factor differs between sizes.
        scaling = (config.rope_scaling_factor, 1.0, 4.0, 8192) if config.use_scaled_rope else None
        angles = rotary_angles(ids.shape[1], size, config.rope_theta, scaling)
        states = self.tok_embeddings(ids)
        for layer in self.layers:
            states = layer(states, angles)
        return self.output(self.norm(states))
