"""The two models of LLMs-from-scratch: its GPT, and its Llama with rotary halves."""

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .parts import RMSNorm, attend, later, repeat_heads, rotary_angles, split_heads


class LayerNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        centred = states - states.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return self.scale * centred / torch.sqrt(variance + 1e-5) + self.shift


class Attention(nn.Module):
    """Attention with rotary `angles` for the Llama, without for the GPT."""

    def __init__(
        self, config: SimpleNamespace, kv_width: int, qkv_bias: bool, out_bias: bool
    ) -> None:
        super().__init__()
        width = config.emb_dim
        self.size = width // config.n_heads
        self.W_query = nn.Linear(width, width, bias=qkv_bias)
        self.W_key = nn.Linear(width, kv_width, bias=qkv_bias)
        self.W_value = nn.Linear(width, kv_width, bias=qkv_bias)
        self.out_proj = nn.Linear(width, width, bias=out_bias)

    def forward(self, states: torch.Tensor, angles: torch.Tensor | None = None) -> torch.Tensor:
        projected = (self.W_query(states), self.W_key(states), self.W_value(states))
        query, key, value = (split_heads(x, x.shape[-1] // self.size) for x in projected)
        if angles is not None:
            query, key = rotate_halves(query, angles), rotate_halves(key, angles)
        times = query.shape[1] // key.shape[1]
        key, value = repeat_heads(key, times), repeat_heads(value, times)
        return self.out_proj(attend(query, key, value, later(states)))


def rotate_halves(states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotate pairs (i, i + size / 2) of [batch, heads, seq, size]."""
    first, second = states.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class FeedForward(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(config.emb_dim, config.hidden_dim),
            nn.GELU(approximate="tanh"),
            nn.Linear(config.hidden_dim, config.emb_dim),
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.layers(states)


class GatedFeedForward(nn.Module):
    def __init__(
        self, config: SimpleNamespace, act: Callable[[torch.Tensor], torch.Tensor] = F.silu
    ) -> None:
        super().__init__()
        self.act = act
        self.fc1 = nn.Linear(config.emb_dim, config.hidden_dim, bias=False)
        self.fc2 = nn.Linear(config.emb_dim, config.hidden_dim, bias=False)
        self.fc3 = nn.Linear(config.hidden_dim, config.emb_dim, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.fc3(self.act(self.fc1(states)) * self.fc2(states))


class Block(nn.Module):
    def __init__(
        self, att: nn.Module, ff: nn.Module, norm: Callable[[int], nn.Module], size: int
    ) -> None:
        super().__init__()
        self.att, self.ff = att, ff
        self.norm1, self.norm2 = norm(size), norm(size)

    def forward(self, states: torch.Tensor, angles: torch.Tensor | None = None) -> torch.Tensor:
        states = states + self.att(self.norm1(states), angles)
        return states + self.ff(self.norm2(states))


class Model(nn.Module):
    """The embeddings, blocks and head of both models."""

    def __init__(
        self, config: SimpleNamespace, blocks: Iterable[nn.Module], norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.config = config
        self.tok_emb = nn.Embedding(config.vocab_size, config.emb_dim)
        self.trf_blocks = nn.ModuleList(blocks)
        self.final_norm = norm(config.emb_dim)
        self.out_head = nn.Linear(config.emb_dim, config.vocab_size, bias=False)
        if config.tied:
            self.out_head.weight = self.tok_emb.weight


class GPT(Model):
    def __init__(self, config: SimpleNamespace) -> None:
        blocks = (
            Block(
                Attention(config, config.emb_dim, config.qkv_bias, out_bias=True),
                FeedForward(config),
                LayerNorm,
                config.emb_dim,
            )
            for _ in range(config.n_layers)
        )
        super().__init__(config, blocks, LayerNorm)
        self.pos_emb = nn.Embedding(config.context_length, config.emb_dim)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = self.tok_emb(ids) + self.pos_emb(torch.arange(ids.shape[1]))
        for block in self.trf_blocks:
            states = block(states)
        return self.out_head(self.final_norm(states))


class Llama(Model):
    def __init__(self, config: SimpleNamespace) -> None:
        norm = partial(RMSNorm, eps=1e-5)
        blocks = (
            Block(
                Attention(config, config.kv_dim, qkv_bias=False, out_bias=False),
                GatedFeedForward(config),
                norm,
                config.emb_dim,
            )
            for _ in range(config.n_layers)
        )
        super().__init__(config, blocks, norm)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        size = self.config.emb_dim // self.config.n_heads
        frequencies = self.config.rope_freq
        scaling = frequencies and tuple(
            frequencies[name]
            for name in ("factor", "low_freq_factor", "high_freq_factor", "original_context_length")
        )
        angles = rotary_angles(ids.shape[1], size, self.config.rope_base, scaling)
        states = self.tok_emb(ids)
        for block in self.trf_blocks:
            states = block(states, angles)
        return self.out_head(self.final_norm(states))
