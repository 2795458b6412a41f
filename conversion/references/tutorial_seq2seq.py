"""The tutorial encoder-decoder: post-norm layers, and one more norm behind each stack."""

from collections.abc import Iterable
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .parts import attend, is_padding, later, split_heads


class Attention(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.heads = config.num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (
            nn.Linear(config.d_model, config.d_model) for _ in range(4)
        )

    def forward(
        self, states: torch.Tensor, source: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        projected = (self.W_q(states), self.W_k(source), self.W_v(source))
        query, key, value = (split_heads(x, self.heads) for x in projected)
        return self.W_o(attend(query, key, value, hidden))


class FeedForward(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.linear1 = nn.Linear(config.d_model, config.d_ff)
        self.linear2 = nn.Linear(config.d_ff, config.d_model)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.linear2(F.relu(self.linear1(states)))


class EncoderLayer(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.self_attn, self.feed_forward = Attention(config), FeedForward(config)
        self.norm1, self.norm2 = nn.LayerNorm(config.d_model), nn.LayerNorm(config.d_model)

    def forward(self, states: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        states = self.norm1(states + self.self_attn(states, states, hidden))
        return self.norm2(states + self.feed_forward(states))


class DecoderLayer(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.self_attn, self.cross_attn = Attention(config), Attention(config)
        self.feed_forward = FeedForward(config)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(config.d_model) for _ in range(3))

    def forward(
        self,
        states: torch.Tensor,
        source: torch.Tensor,
        hidden: torch.Tensor,
        source_hidden: torch.Tensor,
    ) -> torch.Tensor:
        states = self.norm1(states + self.self_attn(states, states, hidden))
        states = self.norm2(states + self.cross_attn(states, source, source_hidden))
        return self.norm3(states + self.feed_forward(states))


class Positions(nn.Module):
    """The saved table of positions, which the proof compares with the formula."""

    pe: torch.Tensor

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.register_buffer("pe", torch.empty(1, config.max_len, config.d_model))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states + self.pe[:, : states.shape[1]]


class Stack(nn.Module):
    def __init__(
        self, config: SimpleNamespace, vocab_size: int, layers: Iterable[nn.Module]
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.pos_encoding = Positions(config)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, ids: torch.Tensor, *context: torch.Tensor) -> torch.Tensor:
        width = self.embedding.embedding_dim
        states = self.pos_encoding(self.embedding(ids) * width**0.5)
        for layer in self.layers:
            states = layer(states, *context)
        return self.norm(states)


class TutorialSeq2Seq(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.pad_idx = config.pad_idx
        encoder = (EncoderLayer(config) for _ in range(config.encoder_layers))
        decoder = (DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder = Stack(config, config.src_vocab_size, encoder)
        self.decoder = Stack(config, config.tgt_vocab_size, decoder)
        self.output_proj = nn.Linear(config.d_model, config.tgt_vocab_size)

    def forward(self, source_ids: torch.Tensor, target_ids: torch.Tensor) -> torch.Tensor:
        source_hidden = is_padding(source_ids, self.pad_idx)
        hidden = is_padding(target_ids, self.pad_idx) | later(target_ids)
        source = self.encoder(source_ids, source_hidden)
        return self.output_proj(self.decoder(target_ids, source, hidden, source_hidden))
