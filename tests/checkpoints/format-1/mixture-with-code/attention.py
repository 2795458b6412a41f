# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Self-attention, by every backend that transformers knows and one of our own.

    query       [batch, heads, query, head_dim]
    key, value  [batch, kv_heads, key, head_dim or value_head_dim]
    output      [batch, query, heads, value_head_dim]

The backend named by `config._attn_implementation` is looked up in transformers' registry, where
users and vLLM register their own. Masks arrive finished, as transformers' functions make them for
the backend. `position_embeddings` is the pair (cos, sin) to rotate by, or None.
"""

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import is_flash_attention_requested

from .norms import build_head_norm


def eager_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    **kwargs: object,
) -> tuple[Tensor, Tensor]:
    """softmax(query keyᵀ · scaling + mask) value: the backend that returns its weights.

    Query heads that share a key are stacked along the query dimension, so keys and values are never
    copied.
    """
    batch, heads, length, _ = query.shape
    kv_heads = key.shape[1]
    scores = query.reshape(batch, kv_heads, -1, query.shape[-1]) @ key.transpose(-1, -2) * scaling
    scores = scores.view(batch, heads, length, -1)
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + as_additive_mask(attention_mask, scores.dtype)
    # Softmax in float32 at least, as in Llama; only the finished weights are rounded.
    exact = torch.promote_types(scores.dtype, torch.float32)
    weights = nn.functional.softmax(scores, dim=-1, dtype=exact).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    output = weights.view(batch, kv_heads, -1, weights.shape[-1]) @ value
    return output.view(batch, heads, length, -1).transpose(1, 2).contiguous(), weights


def as_additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert booleans (True: visible) to what is added to scores; -inf could end in NaN."""
    if mask.dtype != torch.bool:
        return mask
    visible = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return visible.masked_fill(~mask, torch.finfo(dtype).min)


def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate each pair (i, i + half) of the rotated dimensions of each head by its angle.

    query, key [batch, heads, seq, head_dim]; cos, sin [batch or 1, seq, rotated dims], which hold
    each angle twice. A pair (x, y) becomes (x cos - y sin, y cos + x sin).
    """
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    half = sin.shape[-1] // 2
    signed_sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
    return rotate_heads(query, cos, signed_sin), rotate_heads(key, cos, signed_sin)


def rotate_heads(states: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotate queries or keys; dimensions beyond those of `cos` stay as they are."""
    size = cos.shape[-1]
    if size < states.shape[-1]:
        rotated = rotate_heads(states[..., :size], cos, signed_sin)
        return torch.cat((rotated, states[..., size:]), dim=-1)
    return torch.addcmul(states * cos, states.roll(size // 2, dims=-1), signed_sin)


class Attention(nn.Module):
    """The projections, and the attributes that a backend reads from its module.

    Reads from config: hidden_size, num_attention_heads, num_key_value_heads, head_dim,
    value_head_dim (where the family has it), attention_bias, attention_output_bias,
    attention_scale, attention_dropout, attn_logit_softcapping (where the family has it), qk_norm
    (+ the norm's fields), _attn_implementation.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        layer_idx: int,
        is_causal: bool,
        sliding_window: int | None = None,
    ):
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.is_causal, self.sliding_window = is_causal, sliding_window
        self.head_dim = config.head_dim
        self.value_head_dim = getattr(config, "value_head_dim", config.head_dim)
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = config.attention_scale or config.head_dim**-0.5
        self.attention_dropout = config.attention_dropout

        hidden, bias = config.hidden_size, config.attention_bias
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.q_proj = nn.Linear(hidden, heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(hidden, kv_heads * self.value_head_dim, bias=bias)
        output_bias = config.attention_output_bias
        self.o_proj = nn.Linear(heads * self.value_head_dim, hidden, bias=output_bias)
        self.q_norm = build_head_norm(config, heads)
        self.k_norm = build_head_norm(config, kv_heads)
        # CODEPATH: Gemma 2 softcaps its scores; the others do not
        cap = getattr(config, "attn_logit_softcapping", None)
        self.softcap_option = {} if cap is None else {"softcap": cap}

    def project_query(self, hidden_states: Tensor) -> Tensor:
        return self.q_norm(split_heads(self.q_proj(hidden_states), self.head_dim)).transpose(1, 2)

    def project_key_value(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        key = self.k_norm(split_heads(self.k_proj(hidden_states), self.head_dim)).transpose(1, 2)
        value = split_heads(self.v_proj(hidden_states), self.value_head_dim).transpose(1, 2)
        return key, value

    def options(self) -> dict[str, object]:
        """Return the backend's options besides the scale; refuse backends without these options."""
        backend = self.config._attn_implementation or ""
        if self.value_head_dim > self.head_dim and is_flash_attention_requested(self.config):
            raise ValueError(
                f"value_head_dim ({self.value_head_dim}) is larger than head_dim ({self.head_dim}),"
                " which flash attention cannot serve: load with attn_implementation='sdpa'"
            )
        cap = self.softcap_option.get("softcap")
        if cap is not None and ("sdpa" in backend or "paged" in backend):  # some versions ignore it
            raise ValueError(
                f"attn_logit_softcapping is {cap}, which {backend} attention cannot apply: load "
                "with attn_implementation='eager', 'flex_attention' or another"
            )
        dropout = self.attention_dropout if self.training else 0.0
        return {"dropout": dropout, "sliding_window": self.sliding_window, **self.softcap_option}

    def project_output(self, output: Tensor, batch_and_length: torch.Size) -> Tensor:
        """Join the heads; some backends did so already: vLLM returns [tokens, heads · dim]."""
        return self.o_proj(output.reshape(*batch_and_length, -1).contiguous())


def split_heads(projected: Tensor, head_dim: int) -> Tensor:
    """[batch, seq, heads · head_dim] → [batch, seq, heads, head_dim]; heads may be sharded."""
    return projected.unflatten(-1, (-1, head_dim))


class SelfAttention(Attention):
    """Attention of a sequence to itself, optionally rotated, cached, and limited to a window."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        past_key_values: Cache | None = None,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor | None]:
        query = self.project_query(hidden_states)
        key, value = self.project_key_value(hidden_states)
        if position_embeddings is not None:
            query, key = rotate(query, key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx, kwargs=kwargs)
        # Look-up, call and scaling= stay in this function: vLLM parses its source for them.
        attention_interface = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention
        )
        kwargs = {**self.options(), **kwargs}
        output, weights = attention_interface(
            self, query, key, value, attention_mask, scaling=self.scaling, **kwargs
        )
        return self.project_output(output, hidden_states.shape[:-1]), weights
