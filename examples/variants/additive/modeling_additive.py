"""Additive: the encoder-decoder, whose decoder attends to its source as Bahdanau's did.

    score(q, k) = sum over h of v_h tanh(W_q q + W_k k)_h        for each head, with a v of its own

The tanh is taken for each pair of tokens: memory grows by query x key x head_dim.
"""

import torch
from torch import nn
from transformers import initialization as init

from .attention import eager_attention
from .configuration_additive import AdditiveConfig
from .cross_attention import CrossAttention
from .modeling_seq2seq import TformerSeq2SeqForConditionalGeneration, TformerSeq2SeqModel
from .stacks_seq2seq import (
    TformerSeq2SeqDecoder,
    TformerSeq2SeqDecoderLayer,
    TformerSeq2SeqEncoder,
    TformerSeq2SeqPreTrainedModel,
)


class AdditiveAttention(CrossAttention):
    """W_q and W_k are q_proj and k_proj."""

    def __init__(self, config: AdditiveConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.v = nn.Parameter(torch.empty(config.num_attention_heads, config.head_dim))

    def attend(self, query, key, value, attention_mask, **kwargs):
        keys = key.repeat_interleave(self.num_key_value_groups, dim=1)
        sums = torch.tanh(query[:, :, :, None] + keys[:, :, None])  # [batch, heads, q, k, head_dim]
        scores = torch.einsum("bhqkd,hd->bhqk", sums, self.v)
        # The products of a query of zeros are zero: what is added to them is all there is.
        kwargs = {**self.options(), **kwargs, "position_bias": scores}
        query = torch.zeros_like(query)
        return eager_attention(self, query, key, value, attention_mask, 1.0, **kwargs)


class AdditiveDecoderLayer(TformerSeq2SeqDecoderLayer):
    def __init__(self, config: AdditiveConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.cross_attn = AdditiveAttention(config, layer_idx)


class AdditivePreTrainedModel(TformerSeq2SeqPreTrainedModel):
    config: AdditiveConfig
    _no_split_modules = ["TformerSeq2SeqEncoderLayer", "AdditiveDecoderLayer"]
    # Backends multiply queries and keys; transformers refuses by name what is False here.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = False
    _supports_attention_backend = False

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, AdditiveAttention):
            init.normal_(module.v, std=self.config.head_dim**-0.5)


class AdditiveEncoder(AdditivePreTrainedModel, TformerSeq2SeqEncoder):
    pass


class AdditiveDecoder(AdditivePreTrainedModel, TformerSeq2SeqDecoder):
    layer_class = AdditiveDecoderLayer


class AdditiveModel(AdditivePreTrainedModel, TformerSeq2SeqModel):
    # Its own parameters would not be split among processes: each computes all of this attention.
    _tp_plan = {n: x for n, x in TformerSeq2SeqModel._tp_plan.items() if "cross_attn" not in n}

    def post_init(self) -> None:
        self.encoder = AdditiveEncoder(self.config)  # before tables are tied
        self.decoder = AdditiveDecoder(self.config)
        super().post_init()


class AdditiveForConditionalGeneration(
    AdditivePreTrainedModel, TformerSeq2SeqForConditionalGeneration
):
    def post_init(self) -> None:
        self.model = AdditiveModel(self.config)
        super().post_init()


AdditiveModel.register_for_auto_class("AutoModel")
AdditiveForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
