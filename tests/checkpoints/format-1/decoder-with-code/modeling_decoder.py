# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The decoder-only family.

    input_ids [batch, seq] → embed_tokens (+ positions) → n × layer(mask, (cos, sin), cache) → norm
                           → lm_head → logits [batch, seq, vocab]

The model prepares embeddings, positions, masks and the cache; a layer adds the residuals; attention
attends; a head projects.
"""

from torch import nn
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_layers import (
    GenericForQuestionAnswering,
    GenericForSequenceClassification,
    GenericForTokenClassification,
    GradientCheckpointingLayer,
)
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import SelfAttention, mask_unwritten_keys, unless_packed
from .caching import write_in_place
from .configuration_decoder import TformerDecoderConfig
from .generation import StepwiseGenerationMixin
from .layers import (
    MLPS,
    RESIDUALS,
    build_dropout,
    build_norm,
    initialise_projection,
    keep_positions,
    optional_norm,
    plan_for,
)
from .losses import causal_language_model_loss, loss_and_logits
from .positions import build_positions, build_rotation, count_positions, for_all_heads
from .runs import known, run_next_tokens, run_whole_texts, steers_attention

MASK_MAKERS = {
    "full_attention": create_causal_mask,
    "sliding_attention": create_sliding_window_causal_mask,
}


@known
class TformerDecoderLayer(GradientCheckpointingLayer):
    """Self-attention and MLP, each on its own residual branch."""

    def __init__(self, config, layer_idx):
        super().__init__()
        layer_types = getattr(config, "layer_types", None)  # present only where some layer slides
        self.attention_type = layer_types[layer_idx] if layer_types else "full_attention"
        window = config.sliding_window if self.attention_type == "sliding_attention" else None
        self.self_attn = SelfAttention(config, layer_idx, is_causal=True, sliding_window=window)
        self.mlp = MLPS[config.mlp_type](config)
        self.self_attn_norm = build_norm(config, config.hidden_size)
        self.mlp_norm = build_norm(config, config.hidden_size)
        self.dropout = build_dropout(config)
        self.residual = RESIDUALS[config.norm_position]

    def forward(
        self,
        hidden_states,
        attention_mask=None,
        position_embeddings=None,
        past_key_values=None,
        **kwargs,
    ):
        def attend(states):
            return self.self_attn(
                states, attention_mask, position_embeddings, past_key_values, **kwargs
            )[0]

        hidden_states = self.residual(hidden_states, self.self_attn_norm, attend, self.dropout)
        return self.residual(hidden_states, self.mlp_norm, self.mlp, self.dropout)


class TformerDecoderPreTrainedModel(PreTrainedModel):
    """What transformers needs to know to load, shard, initialise and observe the family."""

    config: TformerDecoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TformerDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {
        "hidden_states": TformerDecoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1),
    }

    def _init_weights(self, module):
        super()._init_weights(module)
        initialise_projection(self.config, module)


@known
class TformerDecoderModel(TformerDecoderPreTrainedModel):
    """Token ids to hidden states."""

    layer_class = TformerDecoderLayer

    def __init__(self, config: TformerDecoderConfig):
        super().__init__(config)
        # No padding_idx: masks keep padding out, and where padding shares the end token's id that
        # row must train.
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        # CODEPATH: the 2017 paper and Marian scale; Llama, GPT-2 and BART-large do not
        self.embed_scale = config.hidden_size**0.5 if config.scale_embedding else 1.0
        self.positions = build_positions(config)
        self.rotary_emb = build_rotation(config)
        self.embed_norm = optional_norm(config, config.embedding_norm)
        self.dropout = build_dropout(config)
        self.layers = nn.ModuleList(
            [self.layer_class(config, index) for index in range(config.num_hidden_layers)]
        )
        self.norm = optional_norm(config, config.final_norm)
        self.gradient_checkpointing = False
        self.post_init()

    def post_init(self):
        super().post_init()
        self._tp_plan = plan_for(self, self._tp_plan)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        if not isinstance(attention_mask, dict):  # as generate prepares for several kinds of layers
            attention_mask = mask_unwritten_keys(
                self.config, attention_mask, inputs_embeds, past_key_values
            )
        attention_mask = unless_packed(attention_mask, position_ids, past_key_values)
        masks = self.prepare_masks(attention_mask, inputs_embeds, position_ids, past_key_values)
        if position_ids is None:
            past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
            position_ids = count_positions(
                attention_mask, inputs_embeds.shape[1], past_length, inputs_embeds.device
            )
        # Only after the masks: beside a cache, transformers no longer looks for packed sequences.
        if use_cache and past_key_values is None and not self.training:
            past_key_values = DynamicCache(config=self.config)
        write_in_place(past_key_values)

        hidden_states = self.positions(inputs_embeds * self.embed_scale, position_ids)
        hidden_states = self.dropout(self.embed_norm(hidden_states))
        tables = for_all_heads(self.rotary_emb(hidden_states, position_ids))
        last = self.run_flat(hidden_states, tables, attention_mask, masks, past_key_values, kwargs)
        if last is None:
            for layer in self.layers_in_use():
                hidden_states = layer(
                    hidden_states,
                    attention_mask=masks[layer.attention_type],
                    position_embeddings=tables,
                    past_key_values=past_key_values,
                    position_ids=position_ids,
                    **kwargs,
                )
            last = self.norm(hidden_states)
        return BaseModelOutputWithPast(last_hidden_state=last, past_key_values=past_key_values)

    def run_flat(self, hidden_states, tables, attention_mask, masks, cache, kwargs):
        """What layers and norm make of it, or None where their modules have to be called."""
        if masks.keys() != {"full_attention"} or steers_attention(kwargs):
            return None
        mask = masks["full_attention"]
        last = run_next_tokens(self, hidden_states, tables, cache, mask)
        if last is None:
            last = run_whole_texts(self, hidden_states, tables, attention_mask, mask, cache)
        return last

    def layers_in_use(self):
        return self.layers[: self.config.num_hidden_layers]  # early exit lowers it for a draft

    def prepare_masks(self, attention_mask, inputs_embeds, position_ids, past_key_values):
        """One finished mask per kind of layer; a dict has been prepared by generate already."""
        if isinstance(attention_mask, dict):
            return attention_mask
        return {
            kind: MASK_MAKERS[kind](
                config=self.config,
                inputs_embeds=inputs_embeds,
                attention_mask=attention_mask,
                past_key_values=past_key_values,
                position_ids=position_ids,
            )
            for kind in {layer.attention_type for layer in self.layers}
        }


@known
class TformerDecoderForCausalLM(TformerDecoderPreTrainedModel, StepwiseGenerationMixin):
    """Hidden states to the logits of the next token."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan = {"lm_head": (["hidden_states"], ["logits"])}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: TformerDecoderConfig):
        super().__init__(config)
        self.model = TformerDecoderModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        self.logit_scale = config.logit_scale
        self.loss_function = causal_language_model_loss
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        labels=None,
        use_cache: bool | None = None,
        logits_to_keep=0,
        return_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        """Labels are the inputs themselves, -100 to ignore: they are shifted here, once."""
        if labels is not None and use_cache is None:
            use_cache = False  # nobody decodes from a training step
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        # Scaled before the projection: there are fewer hidden values than logits.
        kept = keep_positions(outputs.last_hidden_state, logits_to_keep)
        loss, logits = loss_and_logits(self, kept * self.logit_scale, labels, return_logits, kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


# The three task heads take only the forward from transformers: its constructors ask AutoModel for
# the base model, which a checkpoint that brings its own code cannot answer. Its forwards keep
# num_items_in_batch from the loss: accepts_loss_kwargs tells Trainer to divide by the steps itself.


class TformerDecoderForSequenceClassification(
    GenericForSequenceClassification, TformerDecoderPreTrainedModel
):
    """The last real token of each row to the scores of its class."""

    accepts_loss_kwargs = False

    def __init__(self, config: TformerDecoderConfig):
        TformerDecoderPreTrainedModel.__init__(self, config)
        self.num_labels = config.num_labels
        self.model = TformerDecoderModel(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()


class TformerDecoderForTokenClassification(
    GenericForTokenClassification, TformerDecoderPreTrainedModel
):
    """Each token to the scores of its class."""

    accepts_loss_kwargs = False

    def __init__(self, config: TformerDecoderConfig):
        TformerDecoderPreTrainedModel.__init__(self, config)
        self.num_labels = config.num_labels
        self.model = TformerDecoderModel(config)
        self.dropout = nn.Dropout(config.dropout)
        self.score = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


class TformerDecoderForQuestionAnswering(
    GenericForQuestionAnswering, TformerDecoderPreTrainedModel
):
    """Each token to its scores as the start and as the end of the answer."""

    def __init__(self, config: TformerDecoderConfig):
        TformerDecoderPreTrainedModel.__init__(self, config)
        self.model = TformerDecoderModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()


# Trainer's label smoothing shifts the labels of a class only if its name stands in this table.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["tformer_decoder"] = "TformerDecoderForCausalLM"

TformerDecoderModel.register_for_auto_class("AutoModel")
TformerDecoderForCausalLM.register_for_auto_class("AutoModelForCausalLM")
TformerDecoderForSequenceClassification.register_for_auto_class(
    "AutoModelForSequenceClassification"
)
TformerDecoderForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")
TformerDecoderForQuestionAnswering.register_for_auto_class("AutoModelForQuestionAnswering")

__all__ = [
    "TformerDecoderForCausalLM",
    "TformerDecoderForQuestionAnswering",
    "TformerDecoderForSequenceClassification",
    "TformerDecoderForTokenClassification",
    "TformerDecoderModel",
    "TformerDecoderPreTrainedModel",
]
