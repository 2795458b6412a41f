# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The encoder-only family.

    input_ids [batch, seq] → embed_tokens (+ types, positions) → n × layer(mask, (cos, sin)) → norm
                           → transform → lm_head → logits [batch, seq, vocab]
                           → classifier → logits [batch, labels] or [batch, seq, labels]

The model prepares embeddings, positions and masks; a layer adds the residuals; attention attends to
both sides; a head projects.
"""

import torch
from torch import nn
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
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import SelfAttention
from .configuration_encoder import TformerEncoderConfig
from .layer_types import layer_type, window_of
from .layers import (
    Layer,
    TiesBeforeSharding,
    build_activation,
    build_dropout,
    embedding_scale,
    initialise,
    plan_for,
)
from .losses import Unprojected, language_model_loss, loss_arguments, needs_logits
from .masks import is_padding_mask, refuse_packed_batch, unless_packed
from .norms import build_norm, optional_norm, unchanged
from .positions import build_positions, count_positions
from .relative_bias import build_relative_bias
from .rotations import RotationByKind


class TformerEncoderLayer(Layer):
    """A layer that sees the tokens on both sides: all of them, or those within a window.

    Reads from config: layer_types, sliding_window, first_attention_norm (+ the layer's fields).
    """

    def __init__(self, config, layer_idx: int):
        kind = layer_type(config, layer_idx)
        super().__init__(config, layer_idx, False, window_of(config, kind))
        self.attention_type = kind
        # CODEPATH: ModernBERT's first layer finds its input normalised; BERT and EuroBERT have all
        if layer_idx == 0 and not config.first_attention_norm:
            self.self_attn_norm = nn.Identity()


class WindowMask:
    """What transformers' function for windows reads; there the farthest token is seen, too."""

    def __init__(self, config):
        self._attn_implementation = config._attn_implementation
        self.sliding_window = config.sliding_window - 1


def prepare_mask(config, kind, attention_mask, inputs_embeds, documents):
    """What a layer of this kind may see, finished for the backend; None where it sees everything.

    `documents` [batch, seq] numbers the packed texts. In flash attention the backend itself knows
    them, and the window.
    """
    slides = window_of(config, kind) is not None
    make = create_bidirectional_sliding_window_mask if slides else create_bidirectional_mask
    return make(
        config=WindowMask(config) if slides else config,
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        # Functions of our own take milliseconds to become a mask.
        and_mask_function=None if documents is None else packed_sequence_mask_function(documents),
    )


def find_documents(attention_mask, position_ids):
    """The number of the packed text of each token [batch, seq], or None where nothing is packed."""
    if position_ids is None or attention_mask is not None:
        return None
    return find_packed_sequence_indices(position_ids)


def build_types(config):
    """Reads from config: type_vocab_size, hidden_size."""
    # CODEPATH: BERT and RoBERTa have segments; DistilBERT, ModernBERT and EuroBERT have none
    if config.type_vocab_size:
        return nn.Embedding(config.type_vocab_size, config.hidden_size)
    return None


class TformerEncoderPreTrainedModel(TiesBeforeSharding, PreTrainedModel):
    """What transformers needs to know to load, shard, initialise and observe the family."""

    config: TformerEncoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TformerEncoderLayer"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {
        "hidden_states": TformerEncoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1),
    }

    def _init_weights(self, module):
        super()._init_weights(module)
        initialise(self.config, module)


class TformerEncoderModel(TformerEncoderPreTrainedModel):
    """Token ids to hidden states."""

    layer_class = TformerEncoderLayer
    # Vectors are asked of folders of masked language models; vLLM stops at weights it cannot place.
    _keys_to_ignore_on_load_unexpected = [r"^transform\.", r"^lm_head\."]

    def __init__(self, config: TformerEncoderConfig):
        super().__init__(config)
        # No padding_idx: a text may use that id for another purpose, and masks hide padding anyway.
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_scale = embedding_scale(config)
        self.embed_types = build_types(config)
        self.positions = build_positions(config)
        self.rotations = RotationByKind(config)
        self.score_bias = build_relative_bias(config, config.num_hidden_layers, is_causal=False)
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
        token_type_ids=None,
        inputs_embeds=None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        attention_mask = unless_packed(attention_mask, position_ids, None)
        boundaries = kwargs.get("cu_seq_lens_q")
        refuse_packed_batch(self.config, attention_mask, position_ids, boundaries)
        documents = find_documents(attention_mask, position_ids)
        if position_ids is None:
            length, device = inputs_embeds.shape[1], inputs_embeds.device
            position_ids = count_positions(attention_mask, length, 0, device)

        hidden_states = self.add_types(inputs_embeds * self.embedding_scale, token_type_ids)
        hidden_states = self.positions(hidden_states, position_ids)
        hidden_states = self.dropout(self.embed_norm(hidden_states))
        rotations = self.rotations(hidden_states, position_ids)
        hidden_states = self.run_layers(
            hidden_states, attention_mask, documents, rotations, position_ids=position_ids, **kwargs
        )
        return BaseModelOutput(last_hidden_state=hidden_states)

    def add_types(self, inputs_embeds, token_type_ids):
        """Adds the embedding of the segment that each token belongs to, the first if not said."""
        if self.embed_types is None:
            return inputs_embeds
        if token_type_ids is None:
            return inputs_embeds + self.embed_types.weight[0]
        return inputs_embeds + self.embed_types(token_type_ids)

    def run_layers(self, hidden_states, attention_mask, documents, position_embeddings, **kwargs):
        """All layers and the final norm, [batch, seq, hidden] → the same shape."""
        masks = {
            kind: prepare_mask(self.config, kind, attention_mask, hidden_states, documents)
            for kind in self.rotations
        }
        biases = self.score_bias(hidden_states)
        for layer, position_bias in zip(self.layers, biases, strict=True):
            hidden_states = layer(
                hidden_states,
                position_bias,
                attention_mask=masks[layer.attention_type],
                position_embeddings=position_embeddings[layer.attention_type],
                **kwargs,
            )
        return self.norm(hidden_states)


class Transform(nn.Module):
    """dense → activation → norm, between the model and a projection.

    Reads from config: hidden_size, head_bias (+ the norm's fields).
    """

    def __init__(self, config, activation: str, has_norm: bool):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.head_bias)
        self.act_fn = build_activation(activation)
        # CODEPATH: every masked language model and ModernBERT's classes; BERT's classes have none
        self.norm = build_norm(config, config.hidden_size) if has_norm else unchanged

    def forward(self, hidden_states):
        return self.norm(self.act_fn(self.dense(hidden_states)))


def build_transform(config, activation: str | None, has_norm: bool):
    # CODEPATH: BERT and ModernBERT; EuroBERT has no dense layer before lm_head
    return Transform(config, activation, has_norm) if activation else unchanged


class TformerEncoderForMaskedLM(TformerEncoderPreTrainedModel):
    """Token ids to the logits of what stands at each place."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan = {"lm_head": (["hidden_states"], ["logits"])}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: TformerEncoderConfig):
        super().__init__(config)
        self.model = TformerEncoderModel(config)
        self.transform = build_transform(config, config.head_act, has_norm=True)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        self.loss_function = language_model_loss
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        token_type_ids=None,
        inputs_embeds=None,
        labels=None,
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
            projected = logits
            if logits is None:
                ignore_index = kwargs.get("ignore_index", -100)
                hidden_states, labels = keep_labelled(hidden_states, labels, ignore_index)
                projected = Unprojected(self.transform(hidden_states), self.lm_head)
            loss = self.loss_function(
                logits=projected, labels=labels, **loss_arguments(self.config, kwargs)
            )
        return MaskedLMOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def keep_labelled(hidden_states, labels, ignore_index):
    """The tokens that have a label, a seventh of them in training; the others need no head."""
    if torch.compiler.is_compiling():  # their number would break the graph
        return hidden_states, labels
    labels = labels.to(hidden_states.device)
    counted = labels != ignore_index
    return hidden_states[counted], labels[counted]


# The three task heads. transformers' loss for whole texts takes no num_items_in_batch:
# accepts_loss_kwargs = False lets Trainer divide by the steps.


class Classifier(nn.Module):
    """Hidden states [..., hidden] to one score for each class [..., labels].

    Reads from config: dropout, hidden_size, classifier_norm (+ the transform's fields).
    """

    def __init__(self, config, activation: str | None, num_labels: int):
        super().__init__()
        self.transform = build_transform(config, activation, config.classifier_norm)
        self.dropout = nn.Dropout(config.dropout)
        self.out_proj = nn.Linear(config.hidden_size, num_labels)

    def forward(self, hidden_states):
        return self.out_proj(self.dropout(self.transform(hidden_states)))


class TextClassifier(Classifier):
    """All of a text [batch, seq, hidden] to its classes [batch, labels].

    vLLM calls this module alone, with what it has pooled as a text of one token.

    Reads from config: classifier_pooling, classifier_act, num_labels (+ the classifier's fields).
    """

    def __init__(self, config):
        super().__init__(config, config.classifier_act, config.num_labels)
        self.pool = POOLINGS[config.classifier_pooling]

    def forward(self, hidden_states, attention_mask=None):
        return super().forward(self.pool(hidden_states, attention_mask))


def first_token(hidden_states, attention_mask):
    """[batch, seq, hidden] → [batch, hidden]: of the first token that is no padding."""
    if not is_padding_mask(attention_mask):
        return hidden_states[:, 0]
    first = attention_mask.to(hidden_states.device).int().argmax(-1)
    return hidden_states[torch.arange(first.shape[0], device=first.device), first]


def mean_token(hidden_states, attention_mask):
    """[batch, seq, hidden] → [batch, hidden]: the mean over the tokens that are no padding."""
    if not is_padding_mask(attention_mask):
        return hidden_states.mean(1)
    real = attention_mask.to(hidden_states)[..., None]
    return (hidden_states * real).sum(1) / real.sum(1).clamp(min=1)


POOLINGS = {"cls": first_token, "mean": mean_token}


def build_token_classifier(config, num_labels: int):
    # CODEPATH: ModernBERT; the classes of BERT's tokens are projected as they are
    return Classifier(config, config.classifier_act if config.classifier_norm else None, num_labels)


class TformerEncoderForSequenceClassification(TformerEncoderPreTrainedModel):
    """Each text to one score for each class."""

    accepts_loss_kwargs = False

    def __init__(self, config: TformerEncoderConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TformerEncoderModel(config)
        self.classifier = TextClassifier(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        token_type_ids=None,
        inputs_embeds=None,
        labels=None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        inputs = input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds
        outputs = self.model(*inputs, return_dict=True, **kwargs)
        logits = self.classifier(outputs.last_hidden_state, attention_mask)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                labels=labels, pooled_logits=logits, config=self.config, **kwargs
            )
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TformerEncoderForTokenClassification(TformerEncoderPreTrainedModel):
    """Each token to one score for each class."""

    def __init__(self, config: TformerEncoderConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TformerEncoderModel(config)
        self.classifier = build_token_classifier(config, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        token_type_ids=None,
        inputs_embeds=None,
        labels=None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        inputs = input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds
        outputs = self.model(*inputs, return_dict=True, **kwargs)
        logits = self.classifier(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, config=self.config, **kwargs)
        return TokenClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TformerEncoderForQuestionAnswering(TformerEncoderPreTrainedModel):
    """Each token to its scores as the start and as the end of the answer."""

    def __init__(self, config: TformerEncoderConfig):
        super().__init__(config)
        self.model = TformerEncoderModel(config)
        self.qa_outputs = build_token_classifier(config, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        token_type_ids=None,
        inputs_embeds=None,
        start_positions=None,
        end_positions=None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        inputs = input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds
        outputs = self.model(*inputs, return_dict=True, **kwargs)
        logits = self.qa_outputs(outputs.last_hidden_state)
        start_logits, end_logits = logits.unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(
                start_logits, end_logits, start_positions, end_positions, **kwargs
            )
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


TformerEncoderModel.register_for_auto_class("AutoModel")
TformerEncoderForMaskedLM.register_for_auto_class("AutoModelForMaskedLM")
TformerEncoderForSequenceClassification.register_for_auto_class(
    "AutoModelForSequenceClassification"
)
TformerEncoderForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")
TformerEncoderForQuestionAnswering.register_for_auto_class("AutoModelForQuestionAnswering")

__all__ = [
    "TformerEncoderForMaskedLM",
    "TformerEncoderForQuestionAnswering",
    "TformerEncoderForSequenceClassification",
    "TformerEncoderForTokenClassification",
    "TformerEncoderModel",
    "TformerEncoderPreTrainedModel",
]
