"""Qwen3 and Gemma 3 of LLMs-from-scratch: each head of queries and keys has a norm."""

from functools import partial
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .llms_from_scratch import GatedFeedForward, rotate_halves
from .parts import attend, later, repeat_heads, rotary_angles, split_heads


class Norm(nn.Module):
    """RMSNorm whose stored weight is an offset from `offset`, which is one in Gemma."""

    def __init__(self, size: int, offset: float = 0.0) -> None:
        super().__init__()
        self.offset = offset
        self.scale = nn.Parameter(torch.zeros(size))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        normalised = states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + 1e-6)
        return normalised * (self.offset + self.scale)


class Attention(nn.Module):
    """Attention with scores divided by the root of `scalar`, the size of a head in Qwen3."""

    def __init__(self, config: SimpleNamespace, scalar: float, offset: float = 0.0) -> None:
        super().__init__()
        width, size = config.emb_dim, config.head_dim
        self.heads, self.groups = config.n_heads, config.n_kv_groups
        self.rescaling = (size / scalar) ** 0.5
        self.W_query = nn.Linear(width, self.heads * size, bias=False)
        self.W_key = nn.Linear(width, self.groups * size, bias=False)
        self.W_value = nn.Linear(width, self.groups * size, bias=False)
        self.out_proj = nn.Linear(self.heads * size, width, bias=False)
        self.q_norm, self.k_norm = Norm(size, offset), Norm(size, offset)

    def forward(
        self, states: torch.Tensor, angles: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        query = self.q_norm(split_heads(self.W_query(states), self.heads))
        key = self.k_norm(split_heads(self.W_key(states), self.groups))
        value = split_heads(self.W_value(states), self.groups)
        query, key = rotate_halves(query, angles), rotate_halves(key, angles)
        times = self.heads // self.groups
        key, value = repeat_heads(key, times), repeat_heads(value, times)
        return self.out_proj(attend(query * self.rescaling, key, value, hidden))


class Qwen3Block(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.att, self.ff = Attention(config, config.head_dim), GatedFeedForward(config)
        self.norm1, self.norm2 = Norm(config.emb_dim), Norm(config.emb_dim)

    def forward(
        self, states: torch.Tensor, angles: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        states = states + self.att(self.norm1(states), angles, hidden)
        return states + self.ff(self.norm2(states))


class Qwen3(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.tok_emb = nn.Embedding(config.vocab_size, config.emb_dim)
        self.trf_blocks = nn.ModuleList(Qwen3Block(config) for _ in range(config.n_layers))
        self.final_norm = Norm(config.emb_dim)
        self.out_head = nn.Linear(config.emb_dim, config.vocab_size, bias=False)
        if config.tied:
            self.out_head.weight = self.tok_emb.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        angles = rotary_angles(ids.shape[1], self.config.head_dim, self.config.rope_base)
        states = self.tok_emb(ids)
        for block in self.trf_blocks:
            states = block(states, angles, later(ids))
        return self.out_head(self.final_norm(states))


class Gemma3Block(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.att = Attention(config, config.query_pre_attn_scalar, offset=1.0)
        self.ff = GatedFeedForward(config, partial(F.gelu, approximate="tanh"))
        self.input_layernorm, self.post_attention_layernorm = self.two_norms(config)
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = self.two_norms(config)

    @staticmethod
    def two_norms(config: SimpleNamespace) -> tuple[Norm, Norm]:
        return Norm(config.emb_dim, offset=1.0), Norm(config.emb_dim, offset=1.0)

    def forward(
        self, states: torch.Tensor, angles: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        attended = self.att(self.input_layernorm(states), angles, hidden)
        states = states + self.post_attention_layernorm(attended)
        changed = self.ff(self.pre_feedforward_layernorm(states))
        return states + self.post_feedforward_layernorm(changed)


class Gemma3(nn.Module):
    """Gemma 3, whose sliding-window layers have a rotary frequency of their own."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.tok_emb = nn.Embedding(config.vocab_size, config.emb_dim)
        self.blocks = nn.ModuleList(Gemma3Block(config) for _ in config.layer_types)
        self.final_norm = Norm(config.emb_dim, offset=1.0)
        self.out_head = nn.Linear(config.emb_dim, config.vocab_size, bias=False)
        if config.tied:
            self.out_head.weight = self.tok_emb.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        config, length = self.config, ids.shape[1]
        far = torch.ones(length, length, dtype=torch.bool).tril(-config.sliding_window)
        masks = {
            "full_attention": (
                rotary_angles(length, config.head_dim, config.rope_base),
                later(ids),
            ),
            "sliding_attention": (
                rotary_angles(length, config.head_dim, config.rope_local_base),
                later(ids) | far,
            ),
        }
        states = self.tok_emb(ids) * config.emb_dim**0.5
        for kind, block in zip(config.layer_types, self.blocks, strict=True):
            states = block(states, *masks[kind])
        return self.out_head(self.final_norm(states))
