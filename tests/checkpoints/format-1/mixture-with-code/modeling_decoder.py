# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The decoder-only family.

    input_ids [batch, seq] → embed_tokens (+ positions) → n × layer(mask, (cos, sin), cache) → norm
                           → lm_head → logits [batch, seq, vocab]

The model prepares embeddings, positions, masks and the cache; a layer adds the residuals; attention
attends; a head projects.
"""

from dataclasses import fields
from functools import partial

from torch import Tensor, nn
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedConfig, modeling_layers
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import is_flash_attention_requested, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import SelfAttention
from .configuration_decoder import TformerDecoderConfig
from .layer_types import layer_rotation, layer_type, layer_window
from .layers import Layer, TformerPreTrainedModel, build_dropout, embedding_scale, keep_positions
from .losses import causal_language_model_loss, compute_loss, ignore_padding, needs_logits
from .norms import optional_norm, unchanged
from .position_bias import build_position_bias
from .positions import adjust_padding, build_positions, build_rotary, count_positions

CACHE = fields(BaseModelOutputWithPast)[1].name  # "past_key_values", "cache" in transformers 5.24
MASK_MAKERS = {
    "full_attention": create_causal_mask,
    "sliding_attention": create_sliding_window_causal_mask,
}


def parallel(layer: Layer, hidden_states: Tensor, **inputs: object) -> Tensor:
    """Attention and MLP read the same hidden states, each through its own norm."""
    attended, _ = layer.self_attn(layer.self_attn_norm(hidden_states), **inputs)
    changed = layer.mlp(layer.mlp_norm(hidden_states))
    hidden_states = hidden_states + layer.dropout(layer.self_attn_output(attended))
    return hidden_states + layer.dropout(layer.mlp_output(changed))


def parallel_shared(layer: Layer, hidden_states: Tensor, **inputs: object) -> Tensor:
    """Attention and MLP read the same hidden states through one norm."""
    normalised = layer.self_attn_norm(hidden_states)
    attended, _ = layer.self_attn(normalised, **inputs)
    changed = layer.mlp(normalised)
    hidden_states = hidden_states + layer.dropout(layer.self_attn_output(attended))
    return hidden_states + layer.dropout(layer.mlp_output(changed))


# CODEPATH: own in NeoX and Falcon-40B; shared in Phi-2, GPT-J, Cohere and Falcon-7B
PARALLEL = {"own": parallel, "shared": parallel_shared}


class TformerDecoderLayer(Layer):
    """A layer that attends to the tokens before it: all of them, or those within a window.

    Reads from config: parallel_residual, layer_types, sliding_window (+ the fields of its rotation
    and the layer's).
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(config, layer_idx, True, layer_window(config, layer_idx))
        self.attention_type = layer_type(config, layer_idx)
        self.own_rotation = layer_rotation(config, layer_idx)
        # CODEPATH: as in PARALLEL; else one after the other
        if config.parallel_residual:
            self.run_sublayers = PARALLEL[config.parallel_residual]
        # CODEPATH: one norm for both; mlp_norm has no weights then
        if config.parallel_residual == "shared":
            self.mlp_norm = nn.Identity()


class TformerDecoderPreTrainedModel(TformerPreTrainedModel):
    """Class attributes that transformers reads from every decoder."""

    config: TformerDecoderConfig
    _no_split_modules = ["TformerDecoderLayer"]
    _can_record_outputs = {
        "hidden_states": TformerDecoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1),
    }

    @property
    def _supports_sdpa(self) -> bool:
        """Deny sdpa to models that softcap attention scores; transformers then chooses eager."""
        return self.config.attn_logit_softcapping is None


class TformerDecoderModel(TformerDecoderPreTrainedModel):
    """Token ids to hidden states."""

    layer_class = TformerDecoderLayer

    def __init__(self, config: TformerDecoderConfig):
        super().__init__(config)
        # No padding_idx: it would keep an embedding from training that may be the end token's, too.
        # Masks hide padding anyway.
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_scale = embedding_scale(config)
        self.positions = build_positions(config)
        self.rotary_emb = build_rotary(config)
        self.score_bias = build_position_bias(config, config.num_hidden_layers, is_causal=True)
        self.embed_norm = optional_norm(config, config.embedding_norm)
        self.dropout = build_dropout(config)
        self.layers = nn.ModuleList(
            [self.layer_class(config, index) for index in range(config.num_hidden_layers)]
        )
        self.norm = optional_norm(config, config.final_norm)
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | dict | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        past_key_values = kwargs.pop(CACHE, past_key_values)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        attention_mask = adjust_padding(
            self.config, inputs_embeds, attention_mask, position_ids, past_key_values, kwargs
        )
        # transformers detects packed sequences (positions that restart) only without a cache.
        packed_position_ids = position_ids if past_key_values is None else None
        if position_ids is None:
            past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
            length, device = inputs_embeds.shape[1], inputs_embeds.device
            position_ids = count_positions(attention_mask, length, past_length, device)
        if use_cache and past_key_values is None and not self.training:
            past_key_values = DynamicCache(config=self.config)

        hidden_states = self.positions(inputs_embeds * self.embedding_scale, position_ids)
        hidden_states = self.dropout(self.embed_norm(hidden_states))
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        inputs = attention_mask, packed_position_ids, position_embeddings, past_key_values
        # flash attention reads position_ids
        hidden_states = self.run_layers(hidden_states, *inputs, position_ids=position_ids, **kwargs)
        return BaseModelOutputWithPast(hidden_states, past_key_values)

    def run_layers(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | dict | None,
        packed_position_ids: Tensor | None,
        position_embeddings: object,
        past_key_values: Cache | None,
        **kwargs: object,
    ) -> Tensor:
        """Apply all layers and the final norm, [batch, seq, hidden] → the same shape."""
        masks = attention_mask  # generate may have finished one for each layer type already
        if not isinstance(masks, dict):
            past = past_key_values if packed_position_ids is None else None  # a new one is empty
            masks = {
                # By position: what is `past_key_values` here is `cache` from transformers 5.24 on.
                name: MASK_MAKERS[name](
                    *(self.config, hidden_states, attention_mask, past),
                    position_ids=packed_position_ids,
                )
                for name in {layer.attention_type for layer in self.layers}
            }
        biases = self.score_bias(hidden_states, past_key_values)
        for layer, position_bias in zip(self.layers_in_use(), biases, strict=False):
            inputs = {"attention_mask": masks[layer.attention_type]}
            inputs["position_embeddings"] = layer.own_rotation(position_embeddings)
            inputs["past_key_values"] = past_key_values
            hidden_states = layer(hidden_states, position_bias, **inputs, **kwargs)
        return self.norm(hidden_states)

    def layers_in_use(self) -> nn.ModuleList:
        return self.layers[: self.config.num_hidden_layers]  # lowered by assistant_early_exit


def softcap(cap: float, logits: Tensor) -> Tensor:
    """Bound logits smoothly to ± cap."""
    return (logits / cap).tanh() * cap


class TformerDecoderForCausalLM(TformerDecoderPreTrainedModel, GenerationMixin):
    """Token ids to the logits of the next token."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan = {"lm_head": (["hidden_states"], ["logits"])}
    _fsdp_plan = {"lm_head": "keep_full_weight"}
    body_class = TformerDecoderModel

    def __init__(self, config: TformerDecoderConfig):
        super().__init__(config)
        self.model = self.body_class(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        self.logit_scale = config.logit_scale
        # CODEPATH: Gemma 2 softcaps its logits; the others do not
        cap = config.final_logit_softcapping
        self.softcap = unchanged if cap is None else partial(softcap, cap)
        self.loss_function = causal_language_model_loss
        self.post_init()

    def init_continuous_batching(self, *args: object, **kwargs: object) -> object:
        """Refuse models of which paged attention would silently omit a part."""
        is_flash = is_flash_attention_requested(self.config)
        for name in ("score_bias", "attn_logit_softcapping"):
            value = getattr(self.config, name)
            if value is not None and not is_flash:
                raise ValueError(
                    f"{name} is {value!r}, which continuous batching omits: use generate()"
                )
        return super().init_continuous_batching(*args, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | dict | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        """Labels are the input ids, -100 where they do not count; the loss function shifts them."""
        if labels is not None and use_cache is None:
            use_cache = False  # a loss needs none
        inputs = input_ids, attention_mask, position_ids, past_key_values, inputs_embeds
        outputs = self.model(*inputs, use_cache=use_cache, return_dict=True, **kwargs)
        # Scaled before lm_head, where values are fewer; a bias of lm_head is not scaled.
        hidden_states = keep_positions(outputs.last_hidden_state, logits_to_keep) * self.logit_scale
        logits = loss = None
        if needs_logits(self, labels, return_logits):
            logits = self.softcap(self.lm_head(hidden_states))
        if labels is not None:
            labels = ignore_padding(labels, attention_mask, kwargs, shift=1)
            loss = compute_loss(self, hidden_states, logits, labels, kwargs)
        others = getattr(outputs, CACHE), outputs.hidden_states, outputs.attentions
        return CausalLMOutputWithPast(loss, logits, *others)


# The three task heads take only the forwards from transformers: its constructors call AutoModel,
# which does not find a checkpoint's own code. The first two forwards pass no num_items_in_batch to
# the loss: accepts_loss_kwargs = False lets Trainer divide by the gradient accumulation steps.


class TaskHead:
    """A body under a projection, which a subclass builds."""

    body_class = TformerDecoderModel

    def __init__(self, config: TformerDecoderConfig):
        TformerDecoderPreTrainedModel.__init__(self, config)
        self.num_labels = config.num_labels
        self.model = self.body_class(config)
        self.build_head(config)
        self.post_init()


class TformerDecoderForSequenceClassification(
    TaskHead, modeling_layers.GenericForSequenceClassification, TformerDecoderPreTrainedModel
):
    """The last token of each sequence that is not pad_token_id, to one score for each class."""

    accepts_loss_kwargs = False

    def build_head(self, config: TformerDecoderConfig) -> None:
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)


class TformerDecoderForTokenClassification(
    TaskHead, modeling_layers.GenericForTokenClassification, TformerDecoderPreTrainedModel
):
    """Each token to one score for each class."""

    accepts_loss_kwargs = False

    def build_head(self, config: TformerDecoderConfig) -> None:
        self.dropout = nn.Dropout(config.dropout)
        self.score = nn.Linear(config.hidden_size, config.num_labels)


class TformerDecoderForQuestionAnswering(
    TaskHead, modeling_layers.GenericForQuestionAnswering, TformerDecoderPreTrainedModel
):
    """Each token to its scores as the start and as the end of the answer."""

    def build_head(self, config: TformerDecoderConfig) -> None:
        self.qa_outputs = nn.Linear(config.hidden_size, 2)


# Trainer's label smoothing shifts the labels of a class only if its name stands in this table.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["tformer_decoder"] = "TformerDecoderForCausalLM"

TformerDecoderModel.register_for_auto_class("AutoModel")
TformerDecoderForCausalLM.register_for_auto_class("AutoModelForCausalLM")
TformerDecoderForSequenceClassification.register_for_auto_class(
    "AutoModelForSequenceClassification"
)
TformerDecoderForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")
TformerDecoderForQuestionAnswering.register_for_auto_class("AutoModelForQuestionAnswering")
