"""torch.nn.Transformer with embeddings, sinusoids and a generator around it."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from .parts import later, sinusoids


class Table(nn.Module):
    def __init__(self, config: SimpleNamespace, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = self.embedding(ids) * self.scale
        return states + sinusoids(*states.shape[1:])


def build_encoder(config: SimpleNamespace) -> nn.TransformerEncoder:
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**of_a_layer(config)),
        config.num_encoder_layers,
        final_norm(config),
        enable_nested_tensor=False,  # one path with and without padding
    )


def build_decoder(config: SimpleNamespace) -> nn.TransformerDecoder:
    layer = nn.TransformerDecoderLayer(**of_a_layer(config))
    return nn.TransformerDecoder(layer, config.num_decoder_layers, final_norm(config))


def of_a_layer(config: SimpleNamespace) -> dict[str, Any]:
    names = ("d_model", "nhead", "dim_feedforward", "activation", "layer_norm_eps", "norm_first")
    return {**{name: getattr(config, name) for name in (*names, "bias")}, "batch_first": True}


def final_norm(config: SimpleNamespace) -> nn.LayerNorm | None:
    if config.final_norm:
        return nn.LayerNorm(config.d_model, config.layer_norm_eps, bias=config.bias)
    return None


class TorchTransformer(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.pad_id = config.pad_token_id
        self.transformer = nn.Transformer(
            config.d_model,
            config.nhead,
            custom_encoder=build_encoder(config),
            custom_decoder=build_decoder(config),
            batch_first=True,
        )
        self.src_tok_emb = Table(config, config.src_vocab_size)
        self.tgt_tok_emb = Table(config, config.tgt_vocab_size)
        self.generator = nn.Linear(config.d_model, config.tgt_vocab_size, config.generator_bias)
        if config.shares_tables:
            self.src_tok_emb.embedding.weight = self.tgt_tok_emb.embedding.weight
        if config.ties_generator:
            self.generator.weight = self.tgt_tok_emb.embedding.weight

    def forward(self, source_ids: torch.Tensor, target_ids: torch.Tensor) -> torch.Tensor:
        source_padding = source_ids == self.pad_id
        states = self.transformer(
            self.src_tok_emb(source_ids),
            self.tgt_tok_emb(target_ids),
            tgt_mask=later(target_ids),
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_ids == self.pad_id,
            memory_key_padding_mask=source_padding,
        )
        return self.generator(states)
