"""A model without memory: every module and every shape, on the meta device."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def skeleton_of(config: "PreTrainedConfig") -> "PreTrainedModel":
    """The language model of a configuration; its weights have shapes and no values."""
    import torch
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForSeq2SeqLM,
    )

    if config.is_encoder_decoder:
        auto_class = AutoModelForSeq2SeqLM
    elif type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        auto_class = AutoModelForCausalLM
    else:
        auto_class = AutoModelForMaskedLM
    with torch.device("meta"):
        model = auto_class.from_config(config)
    refuse_experts(model)
    return model


def refuse_experts(model: "PreTrainedModel") -> None:
    """A token passes through some experts only, which nothing here knows."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 2:
            raise ValueError(
                f"{name} has {parameter.ndim} dimensions, as experts have: plan dense models only"
            )
