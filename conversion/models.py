"""Configurations and models of both sides, by the class names that a format gives."""

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers.dynamic_module_utils import custom_object_save
from transformers.initialization import no_init_weights

import hf_tformer

from .rules import ConversionError

WRONG_VALUES = (ValueError, TypeError, KeyError, StrictDataclassError)


def classes(form, ours):
    """The configuration class and the model class of one side."""
    library, names = (hf_tformer, form.our_classes) if ours else (transformers, form.classes)
    return tuple(getattr(library, name) for name in names)


def load_config(folder, form, ours):
    config_class = classes(form, ours)[0]
    try:
        # A configuration may name attention code on the Hub; what is stated here is not looked up.
        return config_class.from_pretrained(folder, attn_implementation="sdpa")
    except WRONG_VALUES as error:
        raise ConversionError(f"{folder}/config.json: {first_cause(error)}") from error


def translate(config, form, to_ours, dtype):
    """The configuration of the other side, or a refusal that names the field."""
    config_class = classes(form, ours=to_ours)[0]
    fields = (form.config_to_ours if to_ours else form.config_to_theirs)(config)
    try:
        return config_class(**fields, dtype=dtype or config.dtype)
    except WRONG_VALUES as error:
        raise ConversionError(f"{config_class.__name__} refuses: {first_cause(error)}") from error


def first_cause(error):
    """The words of whoever complained first, without the frames that validators put around."""
    while isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())


def build_without_weights(config, form, ours):
    try:
        with no_init_weights(), torch.device("meta"):
            return classes(form, ours)[1](config)
    except WRONG_VALUES as error:
        raise ConversionError(f"{type(config).__name__}: {first_cause(error)}") from error


def save_description(model, folder):
    """Everything that save_pretrained writes except the weights."""
    model.config.architectures = [type(model).__name__]
    if model._auto_class is not None:  # our code travels with the checkpoint
        custom_object_save(model, folder, config=model.config)
    model.config.save_pretrained(folder)
