"""Talking: the decoder, whose heads talk with one another (Shazeer 2020).

    weights_h = sum over g of B_hg softmax(sum over f of A_gf scores_f)

A and B are [heads, heads], and begin as the identity: a new model attends as the decoder does.
"""

import torch
from torch import nn
from transformers import initialization as init
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from .attention import SelfAttention, eager_attention, rotate
from .configuration_talking import TalkingConfig
from .modeling_decoder import (
    TformerDecoderForCausalLM,
    TformerDecoderLayer,
    TformerDecoderModel,
    TformerDecoderPreTrainedModel,
)


class TalkingAttention(SelfAttention):
    def __init__(
        self,
        config: TalkingConfig,
        layer_idx: int,
        is_causal: bool,
        sliding_window: int | None = None,
    ) -> None:
        super().__init__(config, layer_idx, is_causal, sliding_window)
        heads = config.num_attention_heads
        self.mix_scores = nn.Parameter(torch.empty(heads, heads))  # A
        self.mix_weights = nn.Parameter(torch.empty(heads, heads))  # B

    def forward(
        self, hidden_states, attention_mask, position_embeddings, past_key_values=None, **kwargs
    ):
        query = self.project_query(hidden_states)
        key, value = self.project_key_value(hidden_states)
        if position_embeddings is not None:
            query, key = rotate(query, key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        keys, values = (x.repeat_interleave(self.num_key_value_groups, 1) for x in (key, value))
        scores = mix(self.mix_scores, query @ keys.transpose(-1, -2) * self.scaling)
        # The products of a query of zeros are zero: what is added to them is all there is.
        kwargs["position_bias"] = scores + kwargs.get("position_bias", 0.0)
        query = torch.zeros_like(query)
        kwargs |= self.options()
        _, weights = eager_attention(self, query, key, value, attention_mask, 1.0, **kwargs)
        output = (mix(self.mix_weights, weights) @ values).transpose(1, 2)
        # Returned are the weights of each softmax: what is mixed of them need not sum to one.
        return self.project_output(output, hidden_states.shape[:-1]), weights


def mix(matrix, heads):
    """[heads, heads], [batch, heads, query, key] → the same shape"""
    return torch.einsum("hg,bgqk->bhqk", matrix, heads)


class TalkingLayer(TformerDecoderLayer):
    def __init__(self, config: TalkingConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        plain = self.self_attn
        self.self_attn = TalkingAttention(config, layer_idx, plain.is_causal, plain.sliding_window)


class TalkingPreTrainedModel(TformerDecoderPreTrainedModel):
    config: TalkingConfig
    _no_split_modules = ["TalkingLayer"]
    # No backend lets heads talk; transformers refuses by name what is False here.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = False
    _supports_attention_backend = False

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TalkingAttention):
            for matrix in (module.mix_scores, module.mix_weights):
                init.eye_(matrix)


class TalkingModel(TalkingPreTrainedModel, TformerDecoderModel):
    layer_class = TalkingLayer


class TalkingForCausalLM(TalkingPreTrainedModel, TformerDecoderForCausalLM):
    def post_init(self) -> None:
        self.model = TalkingModel(self.config)  # before tables are tied
        super().post_init()


# Trainer's label smoothing shifts the labels of a class only if its name stands in this table.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["talking"] = "TalkingForCausalLM"

TalkingModel.register_for_auto_class("AutoModel")
TalkingForCausalLM.register_for_auto_class("AutoModelForCausalLM")
