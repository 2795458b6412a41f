"""Local: the encoder-decoder, whose decoder looks at a few source tokens around a place p.

local-m   p = t, the place of the target token; softmax over the tokens within D of p
local-p   p = S sigmoid(v_p tanh(W_p h)), of S tokens; the weights of that softmax are multiplied
          by exp(-(s - p)^2 / 2 (D/2)^2), so gradients move p; a row then sums to less than one
"""

import torch
from torch import nn

from .attention import eager_attention
from .configuration_local import LocalConfig
from .cross_attention import CrossAttention
from .modeling_seq2seq import TformerSeq2SeqForConditionalGeneration, TformerSeq2SeqModel
from .positions import count_positions
from .stacks_seq2seq import (
    TformerSeq2SeqDecoder,
    TformerSeq2SeqDecoderLayer,
    TformerSeq2SeqEncoder,
    TformerSeq2SeqPreTrainedModel,
)


class MonotonicAttention(CrossAttention):
    """Local-m. The mask is True at the source's tokens, [batch, 1, 1, source]."""

    def find(self, hidden_states, target_places, lengths):
        """The place of each target token, [batch, heads or 1, target, 1]."""
        return torch.minimum(target_places[:, None, :, None], lengths - 1)

    def weigh(self, weights, distance):
        return weights

    def forward(
        self, hidden_states, encoder_hidden_states, attention_mask, past_key_values=None, **kwargs
    ):
        query = self.project_query(hidden_states)
        key, value = self.encoder_key_value(encoder_hidden_states, past_key_values)
        lengths = attention_mask.sum(-1, keepdim=True)
        places = self.find(hidden_states, kwargs["target_places"], lengths)
        distance = attention_mask.cumsum(-1) - 1 - places
        near = attention_mask & (distance.abs() <= self.config.alignment_window)
        _, weights = eager_attention(self, query, key, value, near, self.scaling, **self.options())
        weights = self.weigh(weights, distance)
        output = weights @ value.repeat_interleave(self.num_key_value_groups, dim=1)
        return self.project_output(output.transpose(1, 2), hidden_states.shape[:-1]), weights


class PredictiveAttention(MonotonicAttention):
    """Local-p, with a place for each head."""

    def __init__(self, config: LocalConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.w_p = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.v_p = nn.Linear(config.hidden_size, config.num_attention_heads, bias=False)

    def find(self, hidden_states, target_places, lengths):
        share = torch.sigmoid(self.v_p(torch.tanh(self.w_p(hidden_states))))
        return lengths * share.float().transpose(1, 2)[..., None]  # halves miscount long sources

    def weigh(self, weights, distance):
        decay = torch.exp(-2 * (distance / self.config.alignment_window) ** 2)
        return weights * decay.to(weights.dtype)


# CODEPATH: local-m where source and target keep step; local-p where each place is to be learned
ALIGNMENTS = {"monotonic": MonotonicAttention, "predictive": PredictiveAttention}


class LocalDecoderLayer(TformerSeq2SeqDecoderLayer):
    def __init__(self, config: LocalConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.cross_attn = ALIGNMENTS[config.alignment](config, layer_idx)


class LocalPreTrainedModel(TformerSeq2SeqPreTrainedModel):
    config: LocalConfig
    _no_split_modules = ["TformerSeq2SeqEncoderLayer", "LocalDecoderLayer"]
    # No backend changes weights after the softmax; transformers refuses what is False here.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = False
    _supports_attention_backend = False


class LocalEncoder(LocalPreTrainedModel, TformerSeq2SeqEncoder):
    pass


class LocalDecoder(LocalPreTrainedModel, TformerSeq2SeqDecoder):
    layer_class = LocalDecoderLayer

    def prepare_cross_mask(self, inputs_embeds, encoder_hidden_states, encoder_attention_mask):
        if encoder_attention_mask is None:
            encoder_attention_mask = encoder_hidden_states.new_ones(encoder_hidden_states.shape[:2])
        return encoder_attention_mask[:, None, None].bool()

    def run_layers(self, hidden_states, source, attention_mask, *inputs, **kwargs):
        past = 0 if inputs[-1] is None else inputs[-1].get_seq_length()
        size = hidden_states.shape[1], past, hidden_states.device
        kwargs["target_places"] = count_positions(attention_mask, *size)
        return super().run_layers(hidden_states, source, attention_mask, *inputs, **kwargs)


class LocalModel(LocalPreTrainedModel, TformerSeq2SeqModel):
    # Its own parameters would not be split among processes: each computes all of this attention.
    _tp_plan = {n: x for n, x in TformerSeq2SeqModel._tp_plan.items() if "cross_attn" not in n}

    def post_init(self) -> None:
        self.encoder = LocalEncoder(self.config)  # before tables are tied
        self.decoder = LocalDecoder(self.config)
        super().post_init()


class LocalForConditionalGeneration(LocalPreTrainedModel, TformerSeq2SeqForConditionalGeneration):
    def post_init(self) -> None:
        self.model = LocalModel(self.config)
        super().post_init()


LocalModel.register_for_auto_class("AutoModel")
LocalForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
