"""Mine: the encoder, with one change. Each attention head learns how sharply it looks."""

import torch
from torch import nn
from transformers import initialization as init

from .attention import SelfAttention
from .configuration_mine import MineConfig
from .modeling_encoder import (
    TformerEncoderForMaskedLM,
    TformerEncoderLayer,
    TformerEncoderModel,
    TformerEncoderPreTrainedModel,
)


class MineAttention(SelfAttention):
    """The scores of each head are multiplied by a number of its own."""

    def __init__(self, config, layer_idx, is_causal, sliding_window=None):
        super().__init__(config, layer_idx, is_causal, sliding_window)
        self.temperature = nn.Parameter(torch.empty(config.num_attention_heads))

    def project_query(self, hidden_states):
        return super().project_query(hidden_states) * self.temperature[:, None, None]


class MineLayer(TformerEncoderLayer):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        window = self.self_attn.sliding_window
        self.self_attn = MineAttention(config, layer_idx, is_causal=False, sliding_window=window)


class MinePreTrainedModel(TformerEncoderPreTrainedModel):
    config: MineConfig
    _no_split_modules = ["MineLayer"]

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, MineAttention):
            init.constant_(module.temperature, self.config.first_temperature)


class MineModel(MinePreTrainedModel, TformerEncoderModel):
    layer_class = MineLayer


class MineForMaskedLM(MinePreTrainedModel, TformerEncoderForMaskedLM):
    def post_init(self):
        self.model = MineModel(self.config)  # before tables are tied
        super().post_init()


MineModel.register_for_auto_class("AutoModel")
MineForMaskedLM.register_for_auto_class("AutoModelForMaskedLM")
