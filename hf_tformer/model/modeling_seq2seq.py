# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The encoder-decoder family.

input_ids [batch, source] → embed + positions → n × encoder layer(mask)               =
encoder_hidden_states
decoder_input_ids [batch, target] → embed + positions → n × decoder layer(self mask, cross mask,
cache)
                                                                      → lm_head → logits [batch,
                                                                      target, vocab]
"""

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import SELF_ATTENTION_ONLY, CrossAttention, PackedKeys, SelfAttention
from .configuration_seq2seq import TformerSeq2SeqConfig
from .layers import MLPS, RESIDUALS, build_norm, keep_positions, optional_norm, plan_for
from .losses import language_model_loss
from .positions import build_positions, build_rotation, count_positions


class TformerSeq2SeqEncoderLayer(GradientCheckpointingLayer):
    """Self-attention over the whole source, and an MLP."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.self_attn = SelfAttention(
            config, layer_idx, is_causal=False, value_head_dim=config.value_head_dim
        )
        self.mlp = MLPS[config.mlp_type](config)
        self.self_attn_norm = build_norm(config, config.hidden_size)
        self.mlp_norm = build_norm(config, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.residual = RESIDUALS[config.norm_position]

    def forward(self, hidden_states, attention_mask=None, position_embeddings=None, **kwargs):
        def attend(states):
            return self.dropout(
                self.self_attn(states, attention_mask, position_embeddings, **kwargs)[0]
            )

        def transform(states):
            return self.dropout(self.mlp(states))

        hidden_states = self.residual(hidden_states, self.self_attn_norm, attend)
        return self.residual(hidden_states, self.mlp_norm, transform)


class TformerSeq2SeqDecoderLayer(GradientCheckpointingLayer):
    """Self-attention over the target so far, cross-attention over the source, and an MLP."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.self_attn = SelfAttention(
            config, layer_idx, is_causal=True, value_head_dim=config.value_head_dim
        )
        self.cross_attn = CrossAttention(config, layer_idx, value_head_dim=config.value_head_dim)
        self.mlp = MLPS[config.mlp_type](config)
        self.self_attn_norm = build_norm(config, config.hidden_size)
        self.cross_attn_norm = build_norm(config, config.hidden_size)
        self.mlp_norm = build_norm(config, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.residual = RESIDUALS[config.norm_position]

    def forward(
        self,
        hidden_states,
        encoder_hidden_states,
        self_mask=None,
        cross_mask=None,
        position_embeddings=None,
        past_key_values=None,
        **kwargs,
    ):
        self_cache = None if past_key_values is None else past_key_values.self_attention_cache

        def attend(states):
            return self.dropout(
                self.self_attn(states, self_mask, position_embeddings, self_cache, **kwargs)[0]
            )

        def attend_source(states):
            return self.dropout(
                self.cross_attn(
                    states, encoder_hidden_states, cross_mask, past_key_values, **kwargs
                )[0]
            )

        def transform(states):
            return self.dropout(self.mlp(states))

        hidden_states = self.residual(hidden_states, self.self_attn_norm, attend)
        hidden_states = self.residual(hidden_states, self.cross_attn_norm, attend_source)
        return self.residual(hidden_states, self.mlp_norm, transform)


class TformerSeq2SeqPreTrainedModel(PreTrainedModel):
    """What transformers needs to know about the family: how to load, shard, initialise and observe
    it."""

    config: TformerSeq2SeqConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TformerSeq2SeqEncoderLayer", "TformerSeq2SeqDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    @property
    def dummy_inputs(self):
        ids = torch.tensor([[3, 4, 5, 6], [3, 4, 5, 6]], device=self.device)
        return {"input_ids": ids, "decoder_input_ids": ids}

    def _resize_token_embeddings(self, new_num_tokens, pad_to_multiple_of=None, mean_resizing=True):
        # CODEPATH: as in TformerSeq2SeqModel
        if self.config.share_encoder_decoder_embeddings:
            return super()._resize_token_embeddings(
                new_num_tokens, pad_to_multiple_of, mean_resizing
            )
        # vocab_size is the target's; a source with a vocabulary of its own keeps its table.
        stacks = [self.get_decoder()]
        # CODEPATH: the teaching encoder-decoder has a source vocabulary of its own; Marian has not
        if self.config.source_vocab_size is None:
            stacks.append(self.get_encoder())
        for stack in stacks:
            stack.embed_tokens = self._get_resized_embeddings(
                stack.embed_tokens, new_num_tokens, pad_to_multiple_of, mean_resizing
            )
        table = self.get_decoder().embed_tokens
        head = self.get_output_embeddings()
        if head is not None:
            size = table.num_embeddings
            self.set_output_embeddings(
                self._get_resized_lm_head(head, size, mean_resizing=mean_resizing)
            )
        return table

    def _init_weights(self, module):
        super()._init_weights(module)
        # CODEPATH: the 2017 paper and its teaching models are Glorot-uniform; Llama, GPT-2 and BART
        # are normal
        if self.config.initializer == "xavier_uniform" and isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)


class Stack(TformerSeq2SeqPreTrainedModel):
    """What encoder and decoder have in common: a table, positions, and how they are put
    together."""

    def __init__(self, config: TformerSeq2SeqConfig):
        super().__init__(config)
        # No padding_idx: masks keep padding out, and where decoding starts with the padding id, as
        # in Marian, that row must train.
        self.embed_tokens = nn.Embedding(self.table_size(config), config.hidden_size)
        # CODEPATH: the 2017 paper and Marian scale; Llama, GPT-2 and BART-large do not
        self.embed_scale = config.hidden_size**0.5 if config.scale_embedding else 1.0
        self.positions = build_positions(config)
        self.rotary_emb = build_rotation(config)
        self.embed_norm = optional_norm(config, config.embedding_norm)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            [self.layer_class(config, i) for i in range(self.depth(config))]
        )
        self.norm = optional_norm(config, config.final_norm)
        self.gradient_checkpointing = False
        self.post_init()

    def embed(self, inputs_embeds, position_ids):
        """Scaled embeddings with their positions, and the angles for attention to rotate by."""
        hidden_states = self.positions(inputs_embeds * self.embed_scale, position_ids)
        hidden_states = self.dropout(self.embed_norm(hidden_states))
        return hidden_states, self.rotary_emb(hidden_states, position_ids)


class TformerSeq2SeqEncoder(Stack):
    """Source ids to encoder hidden states."""

    _can_record_outputs = {
        "hidden_states": TformerSeq2SeqEncoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1),
    }
    layer_class = TformerSeq2SeqEncoderLayer

    def depth(self, config):
        return config.encoder_layers

    def table_size(self, config):
        return config.source_vocab_size or config.vocab_size

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        inputs_embeds=None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=inputs_embeds, attention_mask=attention_mask
        )
        position_ids = count_positions(
            attention_mask, inputs_embeds.shape[1], 0, inputs_embeds.device
        )
        hidden_states, position_embeddings = self.embed(inputs_embeds, position_ids)
        kwargs = {
            name: value
            for name, value in kwargs.items()
            if name not in (*SELF_ATTENTION_ONLY, "use_cache")
        }
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                attention_mask=mask,
                position_embeddings=position_embeddings,
                **kwargs,
            )
        return BaseModelOutput(last_hidden_state=self.norm(hidden_states))


DECODER_STATES = OutputRecorder(TformerSeq2SeqDecoderLayer)
# By this field output_hidden_states=[-1] finds the last state; "num_hidden_layers" would be the
# encoder's. An attribute, because older transformers do not take it as an argument.
DECODER_STATES.num_hidden_layers_key = "decoder_layers"


class TformerSeq2SeqDecoder(Stack):
    """Target ids and encoder hidden states to decoder hidden states."""

    _can_record_outputs = {
        "hidden_states": DECODER_STATES,
        "attentions": OutputRecorder(SelfAttention, index=1),
        "cross_attentions": OutputRecorder(CrossAttention, index=1),
    }
    layer_class = TformerSeq2SeqDecoderLayer

    def depth(self, config):
        return config.decoder_layers

    def table_size(self, config):
        return config.vocab_size

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        encoder_hidden_states=None,
        encoder_attention_mask=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                "give exactly one of decoder_input_ids (or labels) and decoder_inputs_embeds"
            )
        if encoder_hidden_states is None:
            raise ValueError("the decoder attends to encoder_hidden_states: give them")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        past_key_values = self.prepare_cache(past_key_values, use_cache)
        self_cache = None if past_key_values is None else past_key_values.self_attention_cache
        past_length = 0 if self_cache is None else self_cache.get_seq_length()
        position_ids = count_positions(
            attention_mask, inputs_embeds.shape[1], past_length, inputs_embeds.device
        )
        self_mask = create_causal_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            past_key_values=self_cache,
        )
        cross_mask = self.prepare_cross_mask(
            inputs_embeds, encoder_hidden_states, encoder_attention_mask
        )
        hidden_states, position_embeddings = self.embed(inputs_embeds, position_ids)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,
                self_mask=self_mask,
                cross_mask=cross_mask,
                position_embeddings=position_embeddings,
                past_key_values=past_key_values,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.norm(hidden_states), past_key_values=past_key_values
        )

    def prepare_cache(self, past_key_values, use_cache):
        """A pair of caches, made where none is given; a single cache becomes the half for self-
        attention."""
        if past_key_values is None:
            if not use_cache or self.training:
                return None
            past_key_values = DynamicCache(config=self.config)
        if isinstance(past_key_values, EncoderDecoderCache):
            return past_key_values
        return EncoderDecoderCache(past_key_values, DynamicCache(config=self.config))

    def prepare_cross_mask(self, inputs_embeds, encoder_hidden_states, encoder_attention_mask):
        """The encoder's padding in the backend's form; a form that is still 2D belongs to flash
        attention."""
        mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        is_padding_mask = isinstance(mask, torch.Tensor) and mask.ndim == 2
        return PackedKeys(mask) if is_padding_mask else mask


ATTENTION_PLAN = {
    "q_proj": "colwise",
    "k_proj": "colwise",
    "v_proj": "colwise",
    "q_norm": "replicated_with_grad_allreduce",
    "k_norm": "replicated_with_grad_allreduce",
    "o_proj": "rowwise",
}
MLP_PLAN = {"gate_proj": "colwise", "up_proj": "colwise", "down_proj": "rowwise"}


class TformerSeq2SeqModel(TformerSeq2SeqPreTrainedModel):
    """Encoder and decoder, with one table for both or one for each."""

    # The plans stand here and not in the configuration, which the two stacks have in common: each
    # would take them for its own.
    _tp_plan = {
        f"{attention}.{projection}": style
        for attention in (
            "encoder.layers.*.self_attn",
            "decoder.layers.*.self_attn",
            "decoder.layers.*.cross_attn",
        )
        for projection, style in ATTENTION_PLAN.items()
    } | {
        f"{stack}.layers.*.mlp.{projection}": style
        for stack in ("encoder", "decoder")
        for projection, style in MLP_PLAN.items()
    }
    _fsdp_plan = {"encoder.layers.*": "free_full_weight", "decoder.layers.*": "free_full_weight"}

    _tied_weights_keys = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    }

    def __init__(self, config: TformerSeq2SeqConfig):
        super().__init__(config)
        self.encoder = TformerSeq2SeqEncoder(config)
        self.decoder = TformerSeq2SeqDecoder(config)
        # CODEPATH: Marian and BART share; the teaching models have separate vocabularies
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        else:
            self._tied_weights_keys = {}
        self.post_init()

    def post_init(self):
        super().post_init()
        self._tp_plan = plan_for(self, self._tp_plan)

    def get_expanded_tied_weights_keys(self, all_submodels=False):
        # transformers ties nothing unless tie_word_embeddings says so; that field is about the
        # output projection, and source and target share a table independently of it.
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys)

    def get_input_embeddings(self):
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value):
        self.encoder.embed_tokens = value
        # CODEPATH: as in __init__
        if self.config.share_encoder_decoder_embeddings:
            self.shared = self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        decoder_input_ids=None,
        decoder_attention_mask=None,
        encoder_outputs=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        decoder_inputs_embeds=None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                **kwargs,
            )
        elif isinstance(encoder_outputs, (tuple, list)):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


class TformerSeq2SeqForConditionalGeneration(TformerSeq2SeqPreTrainedModel, GenerationMixin):
    """Decoder hidden states to the logits of the next target token."""

    _tied_weights_keys = {"lm_head.weight": "model.shared.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: TformerSeq2SeqConfig):
        super().__init__(config)
        self.model = TformerSeq2SeqModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        # CODEPATH: as in TformerSeq2SeqModel
        if not config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
        # Its name alone would make transformers shift labels that are not to be shifted.
        self.loss_type = "ForMaskedLM"
        self.loss_function = language_model_loss
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels):
        """What the decoder reads when it is to write `labels`: them, one place later
        (DataCollatorForSeq2Seq asks)."""
        return shift_tokens_right(
            labels, self.config.pad_token_id, self.config.decoder_start_token_id
        )

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        decoder_input_ids=None,
        decoder_attention_mask=None,
        encoder_outputs=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        decoder_inputs_embeds=None,
        labels=None,
        use_cache: bool | None = None,
        logits_to_keep=0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """Labels are what the decoder is to write, -100 where nothing is to be learned; nothing
        shifts them."""
        if labels is not None:
            use_cache = (
                False if use_cache is None else use_cache
            )  # nobody decodes from a training step
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        # Scaled before the projection: there are fewer hidden values than logits.
        logits = self.lm_head(
            keep_positions(outputs.last_hidden_state, logits_to_keep) * self.config.logit_scale
        )
        loss = None
        if labels is not None:
            smoothing = {
                "label_smoothing": self.config.label_smoothing,
                "z_loss": self.config.z_loss,
            }
            loss = self.loss_function(
                logits=logits,
                labels=labels,
                vocab_size=self.config.vocab_size,
                **{**smoothing, **kwargs},
            )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )


def shift_tokens_right(labels, pad_token_id, decoder_start_token_id):
    """[a, b, c] → [start, a, b], with ignored labels replaced by padding."""
    if decoder_start_token_id is None or pad_token_id is None:
        raise ValueError(
            f"decoder_start_token_id is {decoder_start_token_id} and pad_token_id is "
            f"{pad_token_id}: set both in the "
            "configuration, decoder inputs are made of them"
        )
    start = torch.full_like(labels[:, :1], decoder_start_token_id)
    return torch.cat((start, labels[:, :-1]), dim=-1).masked_fill(
        torch.cat((torch.zeros_like(start), labels[:, :-1]), dim=-1) == -100, pad_token_id
    )


TformerSeq2SeqModel.register_for_auto_class("AutoModel")
TformerSeq2SeqForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")

__all__ = [
    "TformerSeq2SeqForConditionalGeneration",
    "TformerSeq2SeqModel",
    "TformerSeq2SeqPreTrainedModel",
]
