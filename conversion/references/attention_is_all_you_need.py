"""attention-is-all-you-need-pytorch: post-norm layers, a norm on the embeddings, no bias in
attention."""

from collections.abc import Iterable
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .parts import attend, is_padding, later, split_heads


def build_norm(config: SimpleNamespace) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=1e-6)


class Attention(nn.Module):
    """Attention with its residual branch and norm."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.heads = config.n_head
        self.w_qs = nn.Linear(config.d_model, config.n_head * config.d_k, bias=False)
        self.w_ks = nn.Linear(config.d_model, config.n_head * config.d_k, bias=False)
        self.w_vs = nn.Linear(config.d_model, config.n_head * config.d_v, bias=False)
        self.fc = nn.Linear(config.n_head * config.d_v, config.d_model, bias=False)
        self.layer_norm = build_norm(config)

    def forward(
        self, states: torch.Tensor, source: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        projected = (self.w_qs(states), self.w_ks(source), self.w_vs(source))
        query, key, value = (split_heads(x, self.heads) for x in projected)
        return self.layer_norm(states + self.fc(attend(query, key, value, hidden)))


class FeedForward(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.w_1 = nn.Linear(config.d_model, config.d_inner)
        self.w_2 = nn.Linear(config.d_inner, config.d_model)
        self.layer_norm = build_norm(config)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.layer_norm(states + self.w_2(F.relu(self.w_1(states))))


class EncoderLayer(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.slf_attn, self.pos_ffn = Attention(config), FeedForward(config)

    def forward(self, states: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return self.pos_ffn(self.slf_attn(states, states, hidden))


class DecoderLayer(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.slf_attn, self.enc_attn = Attention(config), Attention(config)
        self.pos_ffn = FeedForward(config)

    def forward(
        self,
        states: torch.Tensor,
        hidden: torch.Tensor,
        source: torch.Tensor,
        source_hidden: torch.Tensor,
    ) -> torch.Tensor:
        states = self.slf_attn(states, states, hidden)
        return self.pos_ffn(self.enc_attn(states, source, source_hidden))


class Positions(nn.Module):
    """The saved table of positions, which the proof compares with the formula."""

    pos_table: torch.Tensor

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.register_buffer("pos_table", torch.empty(1, config.n_position, config.d_model))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states + self.pos_table[:, : states.shape[1]]


class Stack(nn.Module):
    src_word_emb: nn.Embedding
    trg_word_emb: nn.Embedding

    def __init__(self, config: SimpleNamespace, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.scale = config.d_model**0.5 if config.scales_embeddings else 1.0
        self.position_enc = Positions(config)
        self.layer_stack = nn.ModuleList(layers)
        self.layer_norm = build_norm(config)

    def forward(self, embeddings: torch.Tensor, *context: torch.Tensor) -> torch.Tensor:
        states = self.layer_norm(self.position_enc(embeddings * self.scale))
        for layer in self.layer_stack:
            states = layer(states, *context)
        return states


class Transformer(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.pad_idx = config.src_pad_idx
        self.logit_scale = config.d_model**-0.5 if config.scales_logits else 1.0
        layers = range(config.n_layers)
        self.encoder = Stack(config, [EncoderLayer(config) for _ in layers])
        self.decoder = Stack(config, [DecoderLayer(config) for _ in layers])
        self.encoder.src_word_emb = nn.Embedding(config.src_vocab_size, config.d_model)
        self.decoder.trg_word_emb = nn.Embedding(config.trg_vocab_size, config.d_model)
        self.trg_word_prj = nn.Linear(config.d_model, config.trg_vocab_size, bias=False)
        if config.proj_share_weight:
            self.trg_word_prj.weight = self.decoder.trg_word_emb.weight
        if config.embs_share_weight:
            self.encoder.src_word_emb.weight = self.decoder.trg_word_emb.weight

    def forward(self, source_ids: torch.Tensor, target_ids: torch.Tensor) -> torch.Tensor:
        source_hidden = is_padding(source_ids, self.pad_idx)
        hidden = is_padding(target_ids, self.pad_idx) | later(target_ids)
        source = self.encoder(self.encoder.src_word_emb(source_ids), source_hidden)
        embeddings = self.decoder.trg_word_emb(target_ids)
        states = self.decoder(embeddings, hidden, source, source_hidden)
        return self.trg_word_prj(states) * self.logit_scale
