"""All formats, and which one a folder or a file holds."""

import os
from dataclasses import replace
from pathlib import Path

from hf_tformer.file_integrity import fault_of_dtype
from hf_tformer.path_safety import fault_of_path

from ..formats import decoders, encoder_decoders, encoders, plain
from .checkpoints import open_file, read_json
from .errors import ConversionError
from .format import OURS
from .heads import OUR_CLASSES, FormatWithHeads, architecture_of
from .models import Library
from .plain import PlainFormat
from .refused import REFUSED
from .translation import AnyFormat, AnySide

FORMATS = {
    form.name: form
    for kind in (decoders, encoder_decoders, encoders, plain)
    for form in kind.FORMATS
}
# Of a type whose models see one side or both: the format of those that see both.
BIDIRECTIONAL = {"gemma3_text": "embeddinggemma"}


def named(name: str) -> AnyFormat:
    if name in REFUSED:
        raise ConversionError(f"{name} is no format, because {REFUSED[name]}")
    if name not in FORMATS:
        raise ConversionError(f"there is no format {name!r}: choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def exportable(name: str) -> AnyFormat:
    form = named(name)
    if form.config_to_theirs is None:
        choices = [form.name for form in FORMATS.values() if form.config_to_theirs]
        raise ConversionError(f"{name} is read only: choose one of {', '.join(choices)}")
    return form


def refuse_unreadable(path: str | Path) -> None:
    """What leads out of the folder, or is no file, is refused before anything is opened."""
    if os.path.lexists(path) and (fault := fault_of_path(path)):
        raise ConversionError(fault)


def model_type_of(folder: str | Path) -> str:
    """What config.json says; a folder that is not there must not be looked for on the Hub."""
    config = read_json(Path(folder) / "config.json")
    if config.get("quantization_config"):
        raise ConversionError(
            f"{folder} holds quantised weights (quantization_config is set): "
            "convert the model they were made from"
        )
    if fault := fault_of_dtype(config):
        raise ConversionError(f"{folder}: {fault}")
    if (Path(folder) / "adapter_config.json").exists():
        # transformers would load whatever model this file names.
        raise ConversionError(
            f"{folder} holds adapters (adapter_config.json): merge them into their model and "
            "convert that"
        )
    return str(config.get("model_type"))


def detect(src: str | Path, name: str | None = None) -> AnyFormat:
    """The format of what is to be imported; `name` is what the user takes it for."""
    found = format_of(src, name)
    if name is not None and named(name).name != found.name:
        raise ConversionError(f"{src} is {found.name}, not {name}: leave out the format")
    return found


def format_of(src: str | Path, name: str | None = None) -> AnyFormat:
    if Path(src).is_file():
        return format_of_file(src, name)
    if is_meta_folder(src):
        return FORMATS["meta-llama"]
    model_type = model_type_of(src)
    if model_type in OURS:
        raise ConversionError(f"{src} is a {model_type} already: export it, or leave it as it is")
    if model_type in REFUSED:
        raise ConversionError(
            f"model_type is {model_type!r} in {src}/config.json, which hf_tformer cannot express, "
            f"because {REFUSED[model_type]}"
        )

    if read_json(Path(src) / "config.json").get("use_bidirectional_attention"):
        model_type = BIDIRECTIONAL.get(model_type, model_type)
    if model_type not in FORMATS:
        raise ConversionError(
            f"model_type is {model_type!r} in {src}/config.json: choose a folder of {of_folders()}"
        )
    form = FORMATS[model_type]
    return form.reading(src) if isinstance(form, FormatWithHeads) else form


def is_meta_folder(src: str | Path) -> bool:
    return (Path(src) / "params.json").is_file() and not (Path(src) / "config.json").is_file()


def of_folders() -> str:
    return ", ".join(f.name for f in FORMATS.values() if not getattr(f, "marks", ()))


def format_of_file(path: str | Path, name: str | None = None) -> PlainFormat:
    """The layout whose names a file has; where none fits, `name` may say which one to try."""
    names = set(open_file(path).names())
    found = [
        form
        for form in FORMATS.values()
        if isinstance(form, PlainFormat) and form.marks and names.issuperset(form.first_marks())
    ]
    if len(found) == 1:
        return found[0]
    if (
        name is not None
        and isinstance(named(name), PlainFormat)
        and (not found or named(name) in found)
    ):
        return named(name)
    choices = [form.name for form in found] or [
        f.name for f in FORMATS.values() if getattr(f, "marks", ())
    ]
    raise ConversionError(
        f"{path} has the tensor names of {'more than one layout' if found else 'no known layout'}: "
        f"say --format {' or '.join(choices)}, describe it with --rules FILE, or give a folder "
        "with config.json"
    )


def side_of(path: str | Path) -> AnySide:
    """Who reads a folder or a file, ours or theirs."""
    is_folder_of_a_library = not Path(path).is_file() and not is_meta_folder(path)
    if is_folder_of_a_library and (model_type := model_type_of(path)) in OURS:
        return our_side(path, model_type)
    return format_of(path).theirs


def our_model_type(folder: str | Path) -> str:
    """The family of a folder of ours; any other is refused."""
    model_type = model_type_of(folder)
    if model_type not in OURS:
        raise ConversionError(
            f"{folder} is {model_type}, not one of {', '.join(OURS)}: import it first"
        )
    return model_type


def our_side(folder: str | Path, model_type: str) -> Library:
    """Our family, with the class that a folder names where there is more than one."""
    library = OURS[model_type]
    if not library.is_encoder:
        return library
    return replace(library, model_name=architecture_of(folder, OUR_CLASSES))


def format_for(folder: str | Path, name: str) -> AnyFormat:
    """The format that a folder of ours is to be exported to, for the model that it holds."""
    form = exportable(name)
    refuse_unreadable(folder)
    refuse_others_family(folder, form)
    return form.writing(folder) if isinstance(form, FormatWithHeads) else form


def refuse_others_family(folder: str | Path, form: AnyFormat) -> None:
    """The format that a folder of ours is to be exported to has to be one of its family."""
    model_type = our_model_type(folder)
    family = OURS[model_type]
    if family != form.our_classes:
        fitting = [
            other.name
            for other in FORMATS.values()
            if other.our_classes == family and other.config_to_theirs
        ]
        raise ConversionError(
            f"{folder} is a {model_type}, which {form.name} cannot express: "
            f"choose one of {', '.join(fitting)}"
        )
