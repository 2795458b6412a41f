"""All formats, and which one a folder holds."""

from pathlib import Path

from . import bart, gpt2, llama, marian
from .checkpoints import read_json
from .formats import OURS
from .rules import ConversionError

FORMATS = {form.name: form for module in (llama, gpt2, marian, bart) for form in module.FORMATS}


def named(name):
    if name not in FORMATS:
        raise ConversionError(f"there is no format {name!r}: choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def model_type_of(folder):
    """What config.json says; a folder that is not there must not be looked for on the Hub."""
    config = read_json(Path(folder) / "config.json")
    if config.get("quantization_config"):
        raise ConversionError(
            f"{folder} holds quantised weights (quantization_config is set): "
            "convert the model they were made from"
        )
    return str(config.get("model_type"))


def detect(folder, name=None):
    """The format of a folder that is to be imported; `name` is what the user takes it for."""
    model_type = model_type_of(folder)
    if model_type in OURS:
        raise ConversionError(
            f"{folder} is a {model_type} already: export it, or leave it as it is"
        )
    if model_type not in FORMATS:
        raise ConversionError(
            f"model_type is {model_type!r} in {folder}/config.json: "
            f"choose a folder of {', '.join(FORMATS)}"
        )
    if name is not None and named(name).name != model_type:
        raise ConversionError(f"{folder} is {model_type}, not {name}: leave out the format")
    return FORMATS[model_type]


def refuse_others_family(folder, form):
    """The format that a folder of ours is to be exported to has to be one of its family."""
    model_type = model_type_of(folder)
    if model_type not in OURS:
        raise ConversionError(
            f"{folder} is {model_type}, not one of {', '.join(OURS)}: import it first"
        )
    if OURS[model_type] != form.our_classes:
        fitting = [
            other.name for other in FORMATS.values() if other.our_classes == OURS[model_type]
        ]
        raise ConversionError(
            f"{folder} is a {model_type}, which {form.name} cannot express: "
            f"choose one of {', '.join(fitting)}"
        )
