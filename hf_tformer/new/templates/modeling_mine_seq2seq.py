"""Mine: TformerSeq2SeqModel with one change. Each head of the decoder's self-attention learns a
temperature."""

import torch
from torch import nn
from transformers import initialization as init

from .attention import SelfAttention
from .configuration_mine import MineConfig
from .modeling_seq2seq import TformerSeq2SeqForConditionalGeneration, TformerSeq2SeqModel
from .stacks_seq2seq import (
    TformerSeq2SeqDecoder,
    TformerSeq2SeqDecoderLayer,
    TformerSeq2SeqEncoder,
    TformerSeq2SeqPreTrainedModel,
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


class MineDecoderLayer(TformerSeq2SeqDecoderLayer):
    def __init__(self, config: MineConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.self_attn = MineAttention(config, layer_idx, is_causal=True)


class MinePreTrainedModel(TformerSeq2SeqPreTrainedModel):
    config: MineConfig
    _no_split_modules = ["TformerSeq2SeqEncoderLayer", "MineDecoderLayer"]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MineAttention):
            init.constant_(module.temperature, self.config.first_temperature)


class MineEncoder(MinePreTrainedModel, TformerSeq2SeqEncoder):
    pass


class MineDecoder(MinePreTrainedModel, TformerSeq2SeqDecoder):
    layer_class = MineDecoderLayer


class MineModel(MinePreTrainedModel, TformerSeq2SeqModel):
    def post_init(self) -> None:
        self.encoder = MineEncoder(self.config)  # before tables are tied
        self.decoder = MineDecoder(self.config)
        super().post_init()


class MineForConditionalGeneration(MinePreTrainedModel, TformerSeq2SeqForConditionalGeneration):
    def post_init(self) -> None:
        self.model = MineModel(self.config)
        super().post_init()


MineModel.register_for_auto_class("AutoModel")
MineForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
