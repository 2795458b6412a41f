"""Models on the meta device: all modules and shapes, but no memory."""

import copy

import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
    PreTrainedModel,
)

DEPTHS = ("num_hidden_layers", "encoder_layers", "decoder_layers")
BY_LAYER = ("layer_types", "no_rope_layers")  # lists with one entry for each layer


def skeleton_of(config: PreTrainedConfig) -> PreTrainedModel:
    """Build the language model of a configuration with weights that have shapes and no values."""
    with torch.device("meta"):
        model = build_language_model(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 2:  # a token passes through some experts only, unknown here which
            raise ValueError(
                f"{name} has {parameter.ndim} dimensions, as experts have: plan dense models only"
            )
    return model


def build_language_model(config: PreTrainedConfig, **options: object) -> PreTrainedModel:
    """Build the model that the Auto class for language modelling chooses for a configuration."""
    if config.is_encoder_decoder:
        auto_class = AutoModelForSeq2SeqLM
    elif type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        auto_class = AutoModelForCausalLM
    else:
        auto_class = AutoModelForMaskedLM
    return auto_class.from_config(config, **options)


def stacks_of(model: PreTrainedModel) -> dict[str, nn.ModuleList]:
    """Return the stacks of layers by their names, such as model.layers."""
    names = set(model._no_split_modules or ())
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and module and type(module[0]).__name__ in names
    }


def shallow(config: PreTrainedConfig, most: int) -> PreTrainedConfig:
    """Copy a configuration, with at most `most` layers in each stack."""
    config = copy.deepcopy(config)
    for name in DEPTHS:
        if hasattr(config, name):
            setattr(config, name, min(getattr(config, name), most))
    for name in BY_LAYER:
        if getattr(config, name, None):
            setattr(config, name, getattr(config, name)[:most])
    return config
