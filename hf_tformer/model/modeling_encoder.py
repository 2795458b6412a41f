# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The encoder-only family.

input_ids [batch, seq] → embed_tokens (+ types, positions) → n × layer(mask, (cos, sin)) → norm
                       → transform → lm_head → logits [batch, seq, vocab]
                       → classifier → logits [batch, labels] or [batch, seq, labels]
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
    find_packed_sequence_indices,
    packed_sequence_mask_function,
)
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import SelfAttention
from .classifiers import TextClassifier, build_token_classifier, build_transform
from .configuration_encoder import TformerEncoderConfig
from .layer_types import layer_rotation, layer_type, layer_window
from .layers import Layer, TformerPreTrainedModel, build_dropout, embedding_scale
from .losses import compute_loss, language_model_loss, needs_logits
from .norms import optional_norm
from .position_bias import build_position_bias
from .positions import adjust_padding, build_positions, build_rotary, count_positions


class TformerEncoderLayer(Layer):
    """A layer that attends to the tokens on both sides: all of them, or those within a window.

    Reads from config: layer_types, sliding_window, first_attention_norm (+ the layer's fields).
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(config, layer_idx, False, layer_window(config, layer_idx))
        self.attention_type = layer_type(config, layer_idx)
        self.own_rotation = layer_rotation(config, layer_idx)
        # CODEPATH: ModernBERT's first layer finds its input normalised; BERT and EuroBERT have all
        if layer_idx == 0 and not config.first_attention_norm:
            self.self_attn_norm = nn.Identity()


class WindowMask:
    """The fields that transformers' window mask reads; it includes one token more on each side."""

    def __init__(self, config: PreTrainedConfig):
        self._attn_implementation = config._attn_implementation
        self.sliding_window = config.sliding_window - 1


class TformerEncoderPreTrainedModel(TformerPreTrainedModel):
    """Class attributes that transformers reads from every encoder."""

    config: TformerEncoderConfig
    _no_split_modules = ["TformerEncoderLayer"]
    _can_record_outputs = {
        "hidden_states": TformerEncoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1),
    }


class TformerEncoderModel(TformerEncoderPreTrainedModel):
    """Token ids to hidden states."""

    layer_class = TformerEncoderLayer
    # Opened without its head, for sentence vectors; vLLM stops at weights it cannot place.
    _keys_to_ignore_on_load_unexpected = [r"^transform\.", r"^lm_head\."]

    def __init__(self, config: TformerEncoderConfig):
        super().__init__(config)
        # No padding_idx: that id may have another use, and masks hide padding anyway.
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_scale = embedding_scale(config)
        # CODEPATH: BERT and RoBERTa have segments; DistilBERT, ModernBERT and EuroBERT have none
        types = config.type_vocab_size
        self.embed_types = nn.Embedding(types, config.hidden_size) if types else None
        self.positions = build_positions(config)
        self.rotary_emb = build_rotary(config)
        self.score_bias = build_position_bias(config, config.num_hidden_layers, is_causal=False)
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
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        attention_mask = adjust_padding(
            self.config, inputs_embeds, attention_mask, position_ids, kwargs=kwargs
        )
        packed_position_ids = position_ids  # as given: restarting positions mark packed sequences
        if position_ids is None:
            length, device = inputs_embeds.shape[1], inputs_embeds.device
            position_ids = count_positions(attention_mask, length, 0, device)

        hidden_states = self.add_types(inputs_embeds * self.embedding_scale, token_type_ids)
        hidden_states = self.positions(hidden_states, position_ids)
        hidden_states = self.dropout(self.embed_norm(hidden_states))
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        inputs = attention_mask, packed_position_ids, position_embeddings
        hidden_states = self.run_layers(hidden_states, *inputs, position_ids=position_ids, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)

    def add_types(self, inputs_embeds: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Add the embedding of each token's segment, the first segment where none is given."""
        if self.embed_types is None:
            return inputs_embeds
        if token_type_ids is None:
            return inputs_embeds + self.embed_types.weight[0]
        return inputs_embeds + self.embed_types(token_type_ids)

    def run_layers(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None,
        packed_position_ids: Tensor | None,
        position_embeddings: object,
        **kwargs: object,
    ) -> Tensor:
        """Apply all layers and the final norm, [batch, seq, hidden] → the same shape."""
        visible = None  # a function is slow to become a mask: only where sequences are packed
        if attention_mask is None and packed_position_ids is not None:
            documents = find_packed_sequence_indices(packed_position_ids)
            visible = None if documents is None else packed_sequence_mask_function(documents)
        masks = {
            name: self.build_mask(name, attention_mask, hidden_states, visible)
            for name in {layer.attention_type for layer in self.layers}
        }
        biases = self.score_bias(hidden_states)
        for layer, position_bias in zip(self.layers, biases, strict=True):
            inputs = {"attention_mask": masks[layer.attention_type]}
            inputs["position_embeddings"] = layer.own_rotation(position_embeddings)
            hidden_states = layer(hidden_states, position_bias, **inputs, **kwargs)
        return self.norm(hidden_states)

    def build_mask(
        self, layer_type: str, attention_mask: Tensor | None, states: Tensor, visible: object
    ) -> object:
        """Finish the mask of one layer type for the backend; None where nothing is hidden.

        Flash attention finds documents and window by itself.
        """
        slides = layer_type == "sliding_attention"
        make = create_bidirectional_sliding_window_mask if slides else create_bidirectional_mask
        config = WindowMask(self.config) if slides else self.config
        inputs = {"inputs_embeds": states, "attention_mask": attention_mask}
        return make(config=config, **inputs, and_mask_function=visible)


class Head(TformerEncoderPreTrainedModel):
    """Base class of the heads: the model, and the layers that a subclass builds."""

    def __init__(self, config: TformerEncoderConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TformerEncoderModel(config)
        self.build_head(config)
        self.post_init()


class TformerEncoderForMaskedLM(Head):
    """Token ids to the logits of the token at each position."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan = {"lm_head": (["hidden_states"], ["logits"])}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def build_head(self, config: TformerEncoderConfig) -> None:
        self.transform = build_transform(config, config.head_act, has_norm=True)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        self.loss_function = language_model_loss

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        return_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        """Labels are the ids to be found, -100 everywhere else."""
        inputs = input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds
        outputs = self.model(*inputs, return_dict=True, **kwargs)
        hidden_states, logits, loss = outputs.last_hidden_state, None, None
        if needs_logits(self, labels, return_logits):
            logits = self.lm_head(self.transform(hidden_states))
        if labels is not None:
            if logits is None:
                ignore_index = kwargs.get("ignore_index", -100)
                hidden_states, labels = keep_labelled(hidden_states, labels, ignore_index)
                hidden_states = self.transform(hidden_states)
            loss = compute_loss(self, hidden_states, logits, labels, kwargs)
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


def keep_labelled(
    hidden_states: Tensor, labels: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Keep the tokens that have a label, a seventh of them in training; only they need the head."""
    if torch.compiler.is_compiling():  # their number would break the graph
        return hidden_states, labels
    labels = labels.to(hidden_states.device)
    counted = labels != ignore_index
    return hidden_states[counted], labels[counted]


class ClassificationHead(Head):
    """Base class of the two heads that score classes."""

    output_class = TokenClassifierOutput

    def classify(self, hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(hidden_states)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput | TokenClassifierOutput:
        inputs = input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds
        outputs = self.model(*inputs, return_dict=True, **kwargs)
        logits, loss = self.classify(outputs.last_hidden_state, attention_mask), None
        if labels is not None:  # transformers' two losses call the logits by two names
            both = {"logits": logits, "pooled_logits": logits}
            loss = self.loss_function(labels=labels, config=self.config, **both, **kwargs)
        return self.output_class(loss, logits, outputs.hidden_states, outputs.attentions)


class TformerEncoderForSequenceClassification(ClassificationHead):
    """Each sequence to one score for each class."""

    # transformers' loss takes no num_items_in_batch: Trainer divides by the accumulation steps.
    accepts_loss_kwargs = False
    output_class = SequenceClassifierOutput

    def build_head(self, config: TformerEncoderConfig) -> None:
        self.classifier = TextClassifier(config)

    def classify(self, hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(hidden_states, attention_mask)


class TformerEncoderForTokenClassification(ClassificationHead):
    """Each token to one score for each class."""

    def build_head(self, config: TformerEncoderConfig) -> None:
        self.classifier = build_token_classifier(config, config.num_labels)


class TformerEncoderForQuestionAnswering(Head):
    """Each token to its scores as the start and as the end of the answer."""

    def build_head(self, config: TformerEncoderConfig) -> None:
        self.qa_outputs = build_token_classifier(config, 2)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        inputs = input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds
        outputs = self.model(*inputs, return_dict=True, **kwargs)
        logits, loss = self.qa_outputs(outputs.last_hidden_state), None
        start, end = (scores.contiguous() for scores in logits.unbind(-1))
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start, end, start_positions, end_positions, **kwargs)
        return QuestionAnsweringModelOutput(
            loss, start, end, outputs.hidden_states, outputs.attentions
        )


TformerEncoderModel.register_for_auto_class("AutoModel")
TformerEncoderForMaskedLM.register_for_auto_class("AutoModelForMaskedLM")
TformerEncoderForSequenceClassification.register_for_auto_class(
    "AutoModelForSequenceClassification"
)
TformerEncoderForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")
TformerEncoderForQuestionAnswering.register_for_auto_class("AutoModelForQuestionAnswering")
