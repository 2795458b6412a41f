# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""The mixture of experts: a decoder in which each token takes a few of many MLPs.

The experts are in experts.py; all else is the decoder's.
"""

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedConfig
from transformers import initialization as init
from transformers.modeling_outputs import MoeCausalLMOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.output_capturing import OutputRecorder

from .configuration_mixture import TformerMixtureConfig
from .experts import (
    CorrectionBias,
    Experts,
    MixtureMLP,
    Router,
    SharedMixtureMLP,
    balance_loss,
    share_of_labels,
)
from .layers import keep_positions
from .losses import compute_loss, ignore_padding, needs_logits
from .modeling_decoder import (
    CACHE,
    TformerDecoderForCausalLM,
    TformerDecoderForQuestionAnswering,
    TformerDecoderForSequenceClassification,
    TformerDecoderForTokenClassification,
    TformerDecoderLayer,
    TformerDecoderModel,
    TformerDecoderPreTrainedModel,
)
from .positions import is_padding_mask

ALIGNED = 8  # numbers that the rows of an expert are a multiple of, for torch's grouped product


class TformerMixtureLayer(TformerDecoderLayer):
    """A layer of the decoder whose MLP is a mixture of experts.

    Reads from config: mlp_only_layers, shared_expert_intermediate_size (+ the layer's fields).
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        if (engine := config._attn_implementation) in ("vllm", "sglang"):
            raise ValueError(
                f"{engine} has experts of its own, which it does not find in {type(self).__name__}:"
                " use generate()"
            )
        super().__init__(config, layer_idx)
        # CODEPATH: Mixtral, Qwen3-MoE and OLMoE have no shared expert
        is_shared = config.shared_expert_intermediate_size is not None
        # CODEPATH: the first layers of GLM-4.5 and dots1 have one MLP for all tokens
        if layer_idx not in (config.mlp_only_layers or ()):
            self.mlp = SharedMixtureMLP(config) if is_shared else MixtureMLP(config)


class TformerMixturePreTrainedModel(TformerDecoderPreTrainedModel):
    """Class attributes that transformers reads from every mixture of experts."""

    config: TformerMixtureConfig
    _no_split_modules = ["TformerMixtureLayer"]
    _keep_in_fp32_modules_strict = ["correction.bias"]
    _can_record_outputs = {
        **TformerDecoderPreTrainedModel._can_record_outputs,
        "hidden_states": TformerMixtureLayer,
        "router_logits": OutputRecorder(Router, index=0),
    }

    def post_init(self) -> None:
        """Add the plan's entries for weights of experts, and for MLPs of some layers alone."""
        super().post_init()
        prefix = "" if self.base_model is self else f"{self.base_model_prefix}."
        named = (*self.named_modules(), *self.named_parameters())
        parts = (name.split(".") for name, _ in named)
        names = {".".join("*" if part.isdigit() else part for part in name) for name in parts}
        plan = {prefix + name: style for name, style in self.config.base_model_tp_plan.items()}
        mlps = {name: style for name, style in plan.items() if ".mlp." in name and name in names}
        self._tp_plan |= mlps

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, CorrectionBias):
            init.zeros_(module.bias)
        if isinstance(module, (Router, Experts)):
            for stacked in module.parameters(recurse=False):
                self.initialize(stacked)

    def initialize(self, stacked: Tensor) -> None:
        """Initialise the matrix of a router, or those of all experts, as those of nn.Linear."""
        # CODEPATH: as in TformerPreTrainedModel
        if self.config.initializer == "xavier_uniform":
            for matrix in stacked.unsqueeze(0).flatten(0, -3):
                init.xavier_uniform_(matrix)
        else:
            init.normal_(stacked, std=self.config.initializer_range)

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True  # a class inherits the answer of the decoder, where it was asked first

    def get_correct_experts_implementation(self, requested_experts: str | None) -> str:
        """Choose eager by default for what torch's grouped product cannot take.

        While a model is built, torch's default dtype is that of the weights to come.
        """
        sizes = self.config.hidden_size, self.config.moe_intermediate_size
        is_double = torch.get_default_dtype() == torch.float64
        if requested_experts is None and (is_double or any(size % ALIGNED for size in sizes)):
            requested_experts = "eager"
        return super().get_correct_experts_implementation(requested_experts)


class TformerMixtureModel(TformerMixturePreTrainedModel, TformerDecoderModel):
    """Token ids to hidden states."""

    layer_class = TformerMixtureLayer


class TformerMixtureForCausalLM(TformerMixturePreTrainedModel, TformerDecoderForCausalLM):
    """Token ids to the logits of the next token."""

    body_class = TformerMixtureModel

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
        output_router_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MoeCausalLMOutputWithPast:
        """Labels are the input ids, -100 where they do not count; the loss function shifts them."""
        if labels is not None and use_cache is None:
            use_cache = False  # a loss needs none
        if output_router_logits is None:
            output_router_logits = self.config.output_router_logits
        is_balanced = labels is not None and self.config.router_aux_loss_coef != 0
        recorded = {"output_router_logits": output_router_logits or is_balanced}
        inputs = input_ids, attention_mask, position_ids, past_key_values, inputs_embeds
        outputs = self.model(*inputs, use_cache=use_cache, return_dict=True, **recorded, **kwargs)
        hidden_states = keep_positions(outputs.last_hidden_state, logits_to_keep) * self.logit_scale
        logits = loss = None
        if needs_logits(self, labels, return_logits):
            logits = self.softcap(self.lm_head(hidden_states))
        if labels is not None:
            labels = ignore_padding(labels, attention_mask, kwargs, shift=1)
            loss = compute_loss(self, hidden_states, logits, labels, kwargs)
        balance, router_logits = None, getattr(outputs, "router_logits", None)
        if router_logits:  # empty where no layer has experts
            balance = self.balance(router_logits, attention_mask)
        if is_balanced and balance is not None:
            share = share_of_labels(labels, kwargs)
            loss = loss + self.config.router_aux_loss_coef * balance.to(loss.device) * share
        return MoeCausalLMOutputWithPast(
            loss,
            balance,
            logits,
            getattr(outputs, CACHE),
            outputs.hidden_states,
            outputs.attentions,
            router_logits if output_router_logits else None,
        )

    def balance(self, router_logits: tuple[Tensor, ...], attention_mask: object) -> Tensor:
        """Return the balance loss of a pass through all layers."""
        mlps = (layer.mlp for layer in self.model.layers_in_use())
        routers = [mlp.router for mlp in mlps if isinstance(mlp, MixtureMLP)]
        for logits, router in zip(router_logits, routers, strict=True):
            needed = torch.is_grad_enabled() and self.config.router_aux_loss_coef
            if needed and router.weight.requires_grad > logits.requires_grad:
                raise ValueError(
                    "activation checkpointing with use_reentrant=True drops the gradients of the "
                    "balance loss: give use_reentrant=False, or set router_aux_loss_coef to 0"
                )
        mask = None
        if is_padding_mask(attention_mask):
            length = len(router_logits[0]) // len(attention_mask)
            mask = attention_mask[:, -length:]  # the first columns may belong to a cache
        return balance_loss(router_logits, routers, mask)


class TformerMixtureForSequenceClassification(
    TformerMixturePreTrainedModel, TformerDecoderForSequenceClassification
):
    """The last token of each sequence that is not pad_token_id, to one score for each class."""

    body_class = TformerMixtureModel


class TformerMixtureForTokenClassification(
    TformerMixturePreTrainedModel, TformerDecoderForTokenClassification
):
    """Each token to one score for each class."""

    body_class = TformerMixtureModel


class TformerMixtureForQuestionAnswering(
    TformerMixturePreTrainedModel, TformerDecoderForQuestionAnswering
):
    """Each token to its scores as the start and as the end of the answer."""

    body_class = TformerMixtureModel


# Trainer's label smoothing shifts the labels of a class only if its name stands in this table.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["tformer_mixture"] = "TformerMixtureForCausalLM"

TformerMixtureModel.register_for_auto_class("AutoModel")
TformerMixtureForCausalLM.register_for_auto_class("AutoModelForCausalLM")
TformerMixtureForSequenceClassification.register_for_auto_class(
    "AutoModelForSequenceClassification"
)
TformerMixtureForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")
TformerMixtureForQuestionAnswering.register_for_auto_class("AutoModelForQuestionAnswering")
