# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The two stacks of the encoder-decoder family.

encoder  input_ids → embed + positions → n × layer(mask)                         → hidden states
decoder  input_ids → embed + positions → n × layer(self mask, cross mask, cache) → hidden states
"""

from dataclasses import fields

from torch import Tensor, nn
from transformers import Cache, DynamicCache, EncoderDecoderCache, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import SelfAttention
from .configuration_seq2seq import TformerSeq2SeqConfig
from .cross_attention import SELF_ATTENTION_ONLY, CrossAttention, PackedKeys
from .layers import Layer, TformerPreTrainedModel, build_dropout, build_output, embedding_scale
from .norms import optional_norm
from .position_bias import build_position_bias
from .positions import adjust_padding, build_positions, build_rotary, count_positions, count_visible

CACHE = fields(BaseModelOutputWithPastAndCrossAttentions)[1].name  # "cache" in transformers 5.24


class TformerSeq2SeqEncoderLayer(Layer):
    """A layer that attends to the whole source."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(config, layer_idx, is_causal=False)


def pre_norm_cross(
    layer: Layer, hidden_states: Tensor, own: dict, source: tuple, **kwargs: object
) -> Tensor:
    """Normalise what each sub-layer reads, as pre_norm of layers.py."""
    attended, _ = layer.self_attn(layer.self_attn_norm(hidden_states), **own, **kwargs)
    hidden_states = hidden_states + layer.dropout(layer.self_attn_output(attended))
    attended, _ = layer.cross_attn(layer.cross_attn_norm(hidden_states), *source, **kwargs)
    hidden_states = hidden_states + layer.dropout(layer.cross_attn_output(attended))
    changed = layer.mlp(layer.mlp_norm(hidden_states))
    return hidden_states + layer.dropout(layer.mlp_output(changed))


def post_norm_cross(
    layer: Layer, hidden_states: Tensor, own: dict, source: tuple, **kwargs: object
) -> Tensor:
    """Normalise each sum, as post_norm of layers.py."""
    attended, _ = layer.self_attn(hidden_states, **own, **kwargs)
    hidden_states = layer.self_attn_norm(hidden_states + layer.dropout(attended))
    attended, _ = layer.cross_attn(hidden_states, *source, **kwargs)
    hidden_states = layer.cross_attn_norm(hidden_states + layer.dropout(attended))
    return layer.mlp_norm(hidden_states + layer.dropout(layer.mlp(hidden_states)))


class TformerSeq2SeqDecoderLayer(Layer):
    """A layer that attends to the target so far and, before the MLP, to the source."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(config, layer_idx, is_causal=True)
        self.cross_attn = CrossAttention(config, layer_idx)
        self.cross_attn_norm = optional_norm(config, config.norm_position != "inside")
        self.cross_attn_output = build_output(config)
        # CODEPATH: post in the 2017 paper, BART and Marian; pre in T5 and mBART
        self.run_sublayers = post_norm_cross if config.norm_position == "post" else pre_norm_cross

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        position_bias: Tensor | None = None,
        self_mask: object = None,
        cross_mask: object = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: object,
    ) -> Tensor:
        self_cache = None if past_key_values is None else past_key_values.self_attention_cache
        own = {"attention_mask": self_mask, "position_embeddings": position_embeddings}
        own["past_key_values"] = self_cache
        if position_bias is not None:
            own["position_bias"] = position_bias
        source = encoder_hidden_states, cross_mask, past_key_values
        return self.run_sublayers(self, hidden_states, own, source, **kwargs)


class TformerSeq2SeqPreTrainedModel(TformerPreTrainedModel):
    """Class attributes that transformers reads from every encoder-decoder."""

    config: TformerSeq2SeqConfig
    _no_split_modules = ["TformerSeq2SeqEncoderLayer", "TformerSeq2SeqDecoderLayer"]

    def resize_token_embeddings(self, *size: object, **options: object) -> nn.Embedding:
        encoder, decoder = self.get_encoder(), self.get_decoder()
        # CODEPATH: as in TformerSeq2SeqModel
        if self.config.share_encoder_decoder_embeddings:
            return super().resize_token_embeddings(*size, **options)
        # transformers resizes the head with the table that it takes for the input's: the target's,
        # as long as this runs.
        source = encoder.embed_tokens
        encoder.embed_tokens = decoder.embed_tokens
        super().resize_token_embeddings(*size, **options)
        decoder.embed_tokens, encoder.embed_tokens = encoder.embed_tokens, source
        # CODEPATH: the teaching encoder-decoder has a source vocabulary of its own; Marian has not
        if self.config.source_vocab_size is None:
            encoder.resize_token_embeddings(*size, **options)
        self.tie_weights()
        return decoder.embed_tokens


class Stack(TformerSeq2SeqPreTrainedModel):
    """Base class of encoder and decoder: embeddings, positions, layers, the final norm."""

    resize_token_embeddings = PreTrainedModel.resize_token_embeddings  # it has one table

    def __init__(self, config: TformerSeq2SeqConfig, depth: int, tokens: int):
        super().__init__(config)
        if (engine := config._attn_implementation) in ("vllm", "sglang"):
            remedy = "use generate(), or `tformer convert export FOLDER NEW --to ctranslate2`"
            raise ValueError(f"{engine} serves no encoder-decoder: {remedy}")
        # No padding_idx: Marian starts with the padding id, whose embedding must train.
        self.embed_tokens = nn.Embedding(tokens, config.hidden_size)
        self.embedding_scale = embedding_scale(config)
        self.positions = build_positions(config)
        self.rotary_emb = build_rotary(config)
        self.score_bias = build_position_bias(config, depth, self.is_causal)
        self.embed_norm = optional_norm(config, config.embedding_norm)
        self.dropout = build_dropout(config)
        self.layers = nn.ModuleList([self.layer_class(config, i) for i in range(depth)])
        self.norm = optional_norm(config, config.final_norm)
        self.gradient_checkpointing = False
        self.post_init()

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> tuple[Tensor, object]:
        """Scaled embeddings with their positions, and the rotation of attention."""
        hidden_states = self.positions(inputs_embeds * self.embedding_scale, position_ids)
        hidden_states = self.dropout(self.embed_norm(hidden_states))
        return hidden_states, self.rotary_emb(hidden_states, position_ids)


class TformerSeq2SeqEncoder(Stack):
    """Source ids to encoder hidden states."""

    _can_record_outputs = {
        "hidden_states": TformerSeq2SeqEncoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1),
    }
    layer_class = TformerSeq2SeqEncoderLayer
    is_causal = False

    def __init__(self, config: TformerSeq2SeqConfig):
        tokens = config.source_vocab_size or config.vocab_size
        super().__init__(config, config.encoder_layers, tokens)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        length, device = inputs_embeds.shape[1], inputs_embeds.device
        position_ids = count_positions(attention_mask, length, 0, device)
        hidden_states, position_embeddings = self.embed(inputs_embeds, position_ids)
        dropped = (*SELF_ATTENTION_ONLY, "use_cache")
        kwargs = {name: value for name, value in kwargs.items() if name not in dropped}
        inputs = hidden_states, attention_mask, position_embeddings
        return BaseModelOutput(last_hidden_state=self.run_layers(*inputs, **kwargs))

    def run_layers(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None,
        position_embeddings: object,
        **kwargs: object,
    ) -> Tensor:
        """Apply all layers and the final norm, [batch, source, hidden] → the same shape."""
        mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask
        )
        inputs = {"attention_mask": mask, "position_embeddings": position_embeddings}
        biases = self.score_bias(hidden_states)
        for layer, position_bias in zip(self.layers, biases, strict=True):
            hidden_states = layer(hidden_states, position_bias, **inputs, **kwargs)
        return self.norm(hidden_states)


DECODER_STATES = OutputRecorder(TformerSeq2SeqDecoderLayer)
# By this field output_hidden_states=[-1] finds the last state; older versions take no argument.
DECODER_STATES.num_hidden_layers_key = "decoder_layers"


class TformerSeq2SeqDecoder(Stack):
    """Target ids and encoder hidden states to decoder hidden states."""

    _can_record_outputs = {
        "hidden_states": DECODER_STATES,
        "attentions": OutputRecorder(SelfAttention, index=1),
        "cross_attentions": OutputRecorder(CrossAttention, index=1),
    }
    layer_class = TformerSeq2SeqDecoderLayer
    is_causal = True

    def __init__(self, config: TformerSeq2SeqConfig):
        super().__init__(config, config.decoder_layers, config.vocab_size)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        if (input_ids is None) == (inputs_embeds is None):
            names = "decoder_input_ids (or labels) and decoder_inputs_embeds"
            raise ValueError(f"give exactly one of {names}")
        if encoder_hidden_states is None:
            raise ValueError("the decoder attends to encoder_hidden_states: give them")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        past_key_values = self.prepare_cache(kwargs.pop(CACHE, past_key_values), use_cache)
        self_cache = None if past_key_values is None else past_key_values.self_attention_cache
        mask = self.config, inputs_embeds, attention_mask
        attention_mask = adjust_padding(*mask, past_key_values=self_cache)
        if attention_mask is not None and attention_mask.ndim == 4:  # made for a static cache
            position_ids = count_visible(attention_mask)
        else:
            past_length = 0 if self_cache is None else self_cache.get_seq_length()
            length, device = inputs_embeds.shape[1], inputs_embeds.device
            position_ids = count_positions(attention_mask, length, past_length, device)
        hidden_states, position_embeddings = self.embed(inputs_embeds, position_ids)
        source = encoder_hidden_states, attention_mask, encoder_attention_mask
        hidden_states = self.run_layers(
            hidden_states, *source, position_embeddings, past_key_values, **kwargs
        )
        return BaseModelOutputWithPastAndCrossAttentions(hidden_states, past_key_values)

    def run_layers(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor | None,
        encoder_attention_mask: Tensor | None,
        position_embeddings: object,
        past_key_values: EncoderDecoderCache | None,
        **kwargs: object,
    ) -> Tensor:
        """Apply all layers and the final norm, [batch, target, hidden] → the same shape."""
        self_cache = None if past_key_values is None else past_key_values.self_attention_cache
        # By position: what is `past_key_values` here is `cache` from transformers 5.24 on.
        self_mask = create_causal_mask(self.config, hidden_states, attention_mask, self_cache)
        cross_mask = self.prepare_cross_mask(
            hidden_states, encoder_hidden_states, encoder_attention_mask
        )
        inputs = {"self_mask": self_mask, "cross_mask": cross_mask}
        inputs |= {"position_embeddings": position_embeddings, "past_key_values": past_key_values}
        biases = self.score_bias(hidden_states, self_cache)
        for layer, position_bias in zip(self.layers, biases, strict=True):
            hidden_states = layer(
                hidden_states, encoder_hidden_states, position_bias, **inputs, **kwargs
            )
        return self.norm(hidden_states)

    def prepare_cache(
        self, past_key_values: Cache | None, use_cache: bool | None
    ) -> EncoderDecoderCache | None:
        """Make a pair of caches where none is given; a single one serves self-attention."""
        if past_key_values is None:
            if not use_cache or self.training:
                return None
            past_key_values = DynamicCache(config=self.config)
        if not isinstance(past_key_values, EncoderDecoderCache):
            past_key_values = EncoderDecoderCache(past_key_values, DynamicCache(config=self.config))
        return past_key_values

    def prepare_cross_mask(
        self, inputs_embeds: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: object
    ) -> object:
        """Finish the encoder's padding mask for the backend; flash attention's is still 2D."""
        mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        return PackedKeys(mask) if isinstance(mask, Tensor) and mask.ndim == 2 else mask
