# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Attention of a decoder to its encoder's hidden states, in the shapes of attention.py."""

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache, PreTrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention import Attention, eager_attention

# Arguments that describe the decoder's own tokens: wrong for the encoder's keys.
SELF_ATTENTION_ONLY = ("position_ids", "is_causal", "cu_seq_lens_q", "cu_seq_lens_k")
SELF_ATTENTION_ONLY += ("max_length_q", "max_length_k", "position_bias")


class PackedKeys:
    """A padding mask [batch, source] as indices and lengths, in flash attention's packed format."""

    def __init__(self, mask: Tensor):
        mask = mask.bool()
        self.indices = mask.flatten().nonzero().flatten()  # [total], into batch · source
        self.cu_seq_lens = nn.functional.pad(mask.sum(-1).cumsum(0), (1, 0)).to(torch.int32)
        self.max_length = mask.shape[-1]  # an upper bound: the exact one would stall the device

    def to(self, device: torch.device, non_blocking: bool = False) -> "PackedKeys":
        """Copy to another device; accelerate moves the arguments of a layer by this method."""
        moved = object.__new__(PackedKeys)
        moved.max_length = self.max_length
        moved.indices = self.indices.to(device, non_blocking=non_blocking)
        moved.cu_seq_lens = self.cu_seq_lens.to(device, non_blocking=non_blocking)
        return moved

    def gather(self, states: Tensor) -> Tensor:
        """[batch, kv_heads, source, dim] → [1, kv_heads, total, dim]"""
        tokens = states[:, :, : self.max_length]  # a static cache may have room for more
        tokens = tokens.transpose(1, 2).flatten(0, 1).index_select(0, self.indices)
        return tokens.transpose(0, 1).unsqueeze(0)


class CrossAttention(Attention):
    """Attention to the encoder, whose keys and values are computed once and cached."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(config, layer_idx, is_causal=False)

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor | PackedKeys | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor | None]:
        kwargs = {name: value for name, value in kwargs.items() if name not in SELF_ATTENTION_ONLY}
        query = self.project_query(hidden_states)
        key, value = self.encoder_key_value(encoder_hidden_states, past_key_values)
        attend = self.attend_packed if isinstance(attention_mask, PackedKeys) else self.attend
        output, weights = attend(query, key, value, attention_mask, **kwargs)
        return self.project_output(output, hidden_states.shape[:-1]), weights

    def encoder_key_value(
        self, encoder_hidden_states: Tensor, past_key_values: EncoderDecoderCache | None
    ) -> tuple[Tensor, Tensor]:
        if past_key_values is None:
            return self.project_key_value(encoder_hidden_states)
        cache = past_key_values.cross_attention_cache
        if past_key_values.is_updated.get(self.layer_idx):
            return cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        past_key_values.is_updated[self.layer_idx] = True
        return cache.update(*self.project_key_value(encoder_hidden_states), self.layer_idx)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor | None]:
        """Call the backend: the output, and the weights where the backend returns them."""
        attention_interface = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention
        )
        kwargs = {**self.options(), **kwargs}
        return attention_interface(
            self, query, key, value, attention_mask, scaling=self.scaling, **kwargs
        )

    def attend_packed(
        self, query: Tensor, key: Tensor, value: Tensor, packed: PackedKeys, **kwargs: object
    ) -> tuple[Tensor, Tensor | None]:
        """Call flash attention for padded sources, of which only the keys are packed.

        The stock path unpads the queries with the mask of the keys, and so the wrong ones.
        """
        batch, heads, length, head_dim = query.shape
        return self.attend(
            query.transpose(0, 1).reshape(1, heads, batch * length, head_dim),
            packed.gather(key),
            packed.gather(value),
            None,
            cu_seq_lens_q=torch.arange(
                0, (batch + 1) * length, length, dtype=torch.int32, device=query.device
            ),
            cu_seq_lens_k=packed.cu_seq_lens,
            max_length_q=length,
            max_length_k=packed.max_length,
            **kwargs,
        )
