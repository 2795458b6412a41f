"""torchtune's decoders: Llama, Mistral, Phi-3, Qwen2 and Gemma by the names of its own modules."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .llms_from_scratch import rotate_halves
from .llms_from_scratch_bonus import Norm
from .meta_llama import rotate_neighbours
from .parts import attend, later, repeat_heads, rotary_angles, split_heads


class RMSNorm(Norm):
    """RMSNorm whose stored weight is an offset from one in Gemma."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__(config.embed_dim, float(config.is_gemma))
        self.eps = config.norm_eps

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        normalised = states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.eps)
        return normalised * (self.offset + self.scale)


class Attention(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.num_heads, config.num_kv_heads
        width, size = config.embed_dim, config.head_dim
        self.q_proj = nn.Linear(width, self.heads * size, bias=config.has_bias)
        self.k_proj = nn.Linear(width, self.kv_heads * size, bias=config.has_bias)
        self.v_proj = nn.Linear(width, self.kv_heads * size, bias=config.has_bias)
        self.output_proj = nn.Linear(self.heads * size, width, bias=False)
        self.rotate = rotate_halves if config.rotates_halves else rotate_neighbours

    def forward(self, states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        query = self.rotate(split_heads(self.q_proj(states), self.heads), angles)
        key = self.rotate(split_heads(self.k_proj(states), self.kv_heads), angles)
        value = split_heads(self.v_proj(states), self.kv_heads)
        key, value = (repeat_heads(x, self.heads // self.kv_heads) for x in (key, value))
        return self.output_proj(attend(query, key, value, later(states)))


class FeedForward(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.is_gemma = config.is_gemma
        self.w1 = nn.Linear(config.embed_dim, config.intermediate_dim, bias=False)
        self.w2 = nn.Linear(config.intermediate_dim, config.embed_dim, bias=False)
        self.w3 = nn.Linear(config.embed_dim, config.intermediate_dim, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        gate = self.w1(states)
        gate = F.gelu(gate, approximate="tanh") if self.is_gemma else F.silu(gate)
        return self.w2(gate * self.w3(states))


class Layer(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.attn, self.mlp = Attention(config), FeedForward(config)
        self.sa_norm, self.mlp_norm = RMSNorm(config), RMSNorm(config)

    def forward(self, states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        states = states + self.attn(self.sa_norm(states), angles)
        return states + self.mlp(self.mlp_norm(states))


class Torchtune(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.embed_dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config)
        if not config.tied:
            self.output = nn.Linear(config.embed_dim, config.vocab_size, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        config = self.config
        scaling = (float(config.scale_factor), 1.0, 4.0, 8192) if config.scale_factor else None
        angles = rotary_angles(ids.shape[1], config.head_dim, config.rope_base, scaling)
        states = self.tok_embeddings(ids)
        states = states * config.embed_dim**0.5 if config.is_gemma else states
        for layer in self.layers:
            states = layer(states, angles)
        table = self.tok_embeddings.weight if config.tied else self.output.weight
        return F.linear(self.norm(states), table)
