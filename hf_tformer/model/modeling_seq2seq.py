# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The encoder-decoder family: both stacks joined, and the head that generates.

input_ids [batch, source] → encoder (stacks_seq2seq.py)         = encoder_hidden_states
decoder_input_ids [batch, target] → decoder (stacks_seq2seq.py) → hidden_states
                                  → lm_head → logits [batch, target, vocab]
"""

import torch
from torch import Tensor, nn
from transformers import Cache, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .configuration_base import TP_PLAN
from .configuration_seq2seq import TformerSeq2SeqConfig
from .layers import keep_positions
from .losses import compute_loss, ignore_padding, language_model_loss, needs_logits
from .stacks_seq2seq import (
    CACHE,
    TformerSeq2SeqDecoder,
    TformerSeq2SeqEncoder,
    TformerSeq2SeqPreTrainedModel,
)

# Self-attention's entries of the plan, and the same for cross-attention.
STACK_PLAN = {**TP_PLAN, **{name.replace("self_", "cross_"): TP_PLAN[name] for name in TP_PLAN}}


class TableOwner(TformerSeq2SeqPreTrainedModel):
    """Base class: has the encoder, and the table that it may share with the decoder."""

    # Not in the configuration, which each stack would take for its own.
    _tp_plan = {
        f"{stack}.{name}": style
        for stack in ("encoder", "decoder")
        for name, style in STACK_PLAN.items()
    }

    def share_table(self, config: TformerSeq2SeqConfig) -> None:
        # CODEPATH: Marian and BART share; the teaching models have separate vocabularies
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        else:
            self._tied_weights_keys = {}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        # transformers ties nothing without tie_word_embeddings, which is about the head alone.
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embed_tokens = value
        # CODEPATH: as in share_table
        if self.config.share_encoder_decoder_embeddings:
            self.shared = value
            if hasattr(self, "decoder"):
                self.decoder.embed_tokens = value


class TformerSeq2SeqEncoderModel(TableOwner):
    """The encoder without its decoder: source ids to hidden states, for tools that embed text."""

    _no_split_modules = ["TformerSeq2SeqEncoderLayer"]
    _fsdp_plan = {"encoder.layers.*": "free_full_weight"}
    _tied_weights_keys = {"encoder.embed_tokens.weight": "shared.weight"}
    _keys_to_ignore_on_load_unexpected = [r"^(model\.)?decoder\.", r"^lm_head\."]

    def __init__(self, config: TformerSeq2SeqConfig):
        super().__init__(config)
        self.encoder = TformerSeq2SeqEncoder(config)
        self.share_table(config)
        self.post_init()

    def resize_token_embeddings(self, *args: object, **kwargs: object) -> nn.Embedding:
        """Resize the only table that is left, which becomes the one of vocab_size."""
        table = PreTrainedModel.resize_token_embeddings(self, *args, **kwargs)
        self.config.vocab_size, self.config.source_vocab_size = table.num_embeddings, None
        return table

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        kwargs["use_cache"] = False  # as in TformerSeq2SeqModel
        return self.encoder(input_ids, attention_mask, inputs_embeds, **kwargs)


class TformerSeq2SeqModel(TableOwner):
    """Encoder and decoder, with one table for both or one for each."""

    _fsdp_plan = {"encoder.layers.*": "free_full_weight", "decoder.layers.*": "free_full_weight"}
    _tied_weights_keys = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    }

    def __init__(self, config: TformerSeq2SeqConfig):
        super().__init__(config)
        self.encoder = TformerSeq2SeqEncoder(config)
        self.decoder = TformerSeq2SeqDecoder(config)
        self.share_table(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        kwargs["return_dict"] = True
        past_key_values = kwargs.pop(CACHE, past_key_values)
        if encoder_outputs is None:
            # It has no cache, and checkpointed activations would warn of one.
            source = input_ids, attention_mask, inputs_embeds
            encoder_outputs = self.encoder(*source, use_cache=False, **kwargs)
        elif isinstance(encoder_outputs, (tuple, list)):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        target = decoder_input_ids, decoder_attention_mask
        source = encoder_outputs.last_hidden_state, attention_mask
        rest = past_key_values, decoder_inputs_embeds
        decoder_outputs = self.decoder(*target, *source, *rest, use_cache=use_cache, **kwargs)
        return Seq2SeqModelOutput(
            decoder_outputs.last_hidden_state,
            getattr(decoder_outputs, CACHE),
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
        # By its name alone Trainer would count the labels as if they were to be shifted.
        self.loss_type = "ForMaskedLM"
        self.logit_scale = config.logit_scale
        self.loss_function = language_model_loss
        self.post_init()

    def post_init(self) -> None:
        super().post_init()
        # Each process holds the whole table for both stacks; a tied head is that table.
        if self.config.tie_word_embeddings:
            del self._tp_plan["lm_head"]

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Shift `labels` to the decoder's inputs that produce them; collators call this method."""
        ids = self.config.pad_token_id, self.config.decoder_start_token_id
        return shift_tokens_right(labels, *ids)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """Labels are the target ids, -100 where they do not count; nothing shifts them."""
        if labels is not None and use_cache is None:
            use_cache = False  # a loss needs none
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        inputs = input_ids, attention_mask, decoder_input_ids, decoder_attention_mask
        rest = encoder_outputs, past_key_values, inputs_embeds, decoder_inputs_embeds
        outputs = self.model(*inputs, *rest, use_cache=use_cache, return_dict=True, **kwargs)
        hidden_states = keep_positions(outputs.last_hidden_state, logits_to_keep) * self.logit_scale
        logits = loss = None
        if needs_logits(self, labels, return_logits):
            logits = self.lm_head(hidden_states)
        if labels is not None:
            labels = ignore_padding(labels, decoder_attention_mask, kwargs, shift=0)
            loss = compute_loss(self, hidden_states, logits, labels, kwargs)
        shared = {name: x for name, x in outputs.items() if name != "last_hidden_state"}
        return Seq2SeqLMOutput(loss=loss, logits=logits, **shared)


def shift_tokens_right(
    labels: Tensor, pad_token_id: int | None, decoder_start_token_id: int | None
) -> Tensor:
    """[a, b, c] → [start, a, b], with ignored labels replaced by padding."""
    if decoder_start_token_id is None or pad_token_id is None:
        raise ValueError(
            f"decoder_start_token_id is {decoder_start_token_id} and pad_token_id is "
            f"{pad_token_id}: set both in the configuration, decoder inputs are made of them"
        )
    start = torch.full_like(labels[:, :1], decoder_start_token_id)
    previous = labels[:, :-1]
    return torch.cat((start, previous.masked_fill(previous == -100, pad_token_id)), dim=-1)


TformerSeq2SeqEncoderModel.register_for_auto_class("AutoModelForTextEncoding")
TformerSeq2SeqModel.register_for_auto_class("AutoModel")
TformerSeq2SeqForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
