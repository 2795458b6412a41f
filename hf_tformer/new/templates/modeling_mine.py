"""Mine: TformerDecoderModel with one change. Each attention head learns a temperature."""

import torch
from torch import nn
from transformers import initialization as init
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from .attention import SelfAttention
from .configuration_mine import MineConfig
from .modeling_decoder import (
    TformerDecoderForCausalLM,
    TformerDecoderLayer,
    TformerDecoderModel,
    TformerDecoderPreTrainedModel,
)


class MineAttention(SelfAttention):
    """Self-attention that multiplies the scores of each head by a learned temperature."""

    def __init__(
        self,
        config: MineConfig,
        layer_idx: int,
        is_causal: bool,
        sliding_window: int | None = None,
    ) -> None:
        super().__init__(config, layer_idx, is_causal, sliding_window)
        self.temperature = nn.Parameter(torch.empty(config.num_attention_heads))

    def project_query(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().project_query(hidden_states) * self.temperature[:, None, None]


class MineLayer(TformerDecoderLayer):
    def __init__(self, config: MineConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        plain = self.self_attn
        self.self_attn = MineAttention(config, layer_idx, plain.is_causal, plain.sliding_window)


class MinePreTrainedModel(TformerDecoderPreTrainedModel):
    config: MineConfig
    _no_split_modules = ["MineLayer"]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MineAttention):
            init.constant_(module.temperature, self.config.first_temperature)


class MineModel(MinePreTrainedModel, TformerDecoderModel):
    layer_class = MineLayer


class MineForCausalLM(MinePreTrainedModel, TformerDecoderForCausalLM):
    def post_init(self) -> None:
        self.model = MineModel(self.config)  # before tables are tied
        super().post_init()


# Trainer's label smoothing shifts the labels of a class only if its name stands in this table.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["mine"] = "MineForCausalLM"

MineModel.register_for_auto_class("AutoModel")
MineForCausalLM.register_for_auto_class("AutoModelForCausalLM")
