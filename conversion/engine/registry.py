"""All formats, and how the format of a folder or a file is found."""

import os
from dataclasses import replace
from pathlib import Path

from hf_tformer.file_integrity import fault_of_dtype
from hf_tformer.path_safety import fault_of_path

from ..formats import decoders, encoder_decoders, encoders, mixtures, plain
from .aliases import FilePath
from .checkpoints import open_file, read_json
from .decoder_heads import our_decoder, read_head, written_head
from .errors import ConversionError
from .foreign import (
    ADAPTER_FOLDER,
    holds_library_weights,
    is_lightning,
    lightning_refusal,
    refuse_foreign,
)
from .format import DECODERS, OURS, Format
from .heads import OUR_CLASSES, FormatWithHeads, architecture_of
from .models import Library
from .nearest import LISTING, choices, no_format
from .plain import PlainFormat
from .refused import REFUSED
from .translation import AnyFormat, AnySide

FORMATS = {
    format.name: format
    for kind in (decoders, mixtures, encoder_decoders, encoders, plain)
    for format in kind.FORMATS
}
# The format of bidirectional models, for a model_type that has both kinds.
BIDIRECTIONAL = {"gemma3_text": "embeddinggemma"}


def named(name: str) -> AnyFormat:
    if name in REFUSED:
        raise ConversionError(f"{name} is no format, because {REFUSED[name]}")
    if name not in FORMATS:
        raise ConversionError(no_format(name, FORMATS))
    return FORMATS[name]


def exportable(name: str) -> AnyFormat:
    format = named(name)
    if format.config_to_theirs is None:
        raise ConversionError(
            f"{name} is read only: choose a format that {LISTING} lists with both ways"
        )
    return format


def refuse_unreadable(path: FilePath) -> None:
    """Refuse links out of the folder, pipes and the like before anything is opened.

    What is missing, or what another program reads, is refused as well.
    """
    if os.path.lexists(path) and (fault := fault_of_path(Path(path))):
        raise ConversionError(fault)
    if program_of(path) is None:
        refuse_foreign(path)


def model_type_of(folder: FilePath) -> str:
    """Return the model_type in config.json, without looking for a missing folder on the Hub."""
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
        raise ADAPTER_FOLDER.refusal(Path(folder))
    return str(config.get("model_type"))


def detect(src: FilePath, name: str | None = None) -> AnyFormat:
    """Return the format of a source; `name` is the one that the user expects."""
    found = format_of(src, name)
    if name is not None and named(name).name != found.name:
        raise ConversionError(f"{src} is {found.name}, not {name}: omit the format")
    return found


def format_of(src: FilePath, name: str | None = None) -> AnyFormat:
    if Path(src).is_file():
        return format_of_file(src, name)
    if (program := program_of(src)) is not None:
        return program
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
    if model_type == "None":
        raise ConversionError(
            f"{src}/config.json names no model_type: write the one of its class in transformers, "
            f"which {LISTING} lists"
        )
    if model_type not in FORMATS:
        raise ConversionError(
            f"model_type is {model_type!r} in {src}/config.json, which is no format: "
            f"{choices(model_type, of_folders())}"
        )
    return of_named_head(FORMATS[model_type], src)


def of_named_head(format: AnyFormat, src: FilePath) -> AnyFormat:
    """Return the format of the head that a folder of theirs holds, or of its body alone."""
    if isinstance(format, FormatWithHeads):
        return format.reading(src)
    if isinstance(format, Format) and format.our_classes in DECODERS:
        return read_head(format, src)
    return format


def program_of(folder: FilePath) -> PlainFormat | None:
    """Return the layout of a folder that holds no weights for transformers."""
    folder = Path(folder)
    if not folder.is_dir() or holds_library_weights(folder):
        return None
    for format in FORMATS.values():
        if isinstance(format, PlainFormat) and format.in_folder and format.in_folder(folder):
            return format
    return None


def of_folders() -> list[str]:
    return [f.name for f in FORMATS.values() if not getattr(f, "marks", ())]


def format_of_file(path: FilePath, name: str | None = None) -> PlainFormat:
    """Return the layout whose names a file has; if none fits, that of `name`."""
    names = tensor_names(path)
    found = layouts_with(names)
    if len(found) == 1:
        return found[0]
    expected = None if name is None else named(name)
    if isinstance(expected, PlainFormat) and (not found or expected in found):
        return expected
    refuse_wrapped(path, names)
    fitting = [format.name for format in found] or [
        f.name for f in FORMATS.values() if getattr(f, "marks", ())
    ]
    raise ConversionError(
        f"{path} has the tensor names of {'more than one layout' if found else 'no known layout'}: "
        f"give --format {' or '.join(fitting)}, describe it with --rules FILE, or give a folder "
        "with config.json"
    )


def tensor_names(path: FilePath) -> set[str]:
    try:
        return set(open_file(path).names())
    except ConversionError as error:
        if is_lightning(path):  # it may hold more than tensors
            raise lightning_refusal(path) from error
        raise


def layouts_with(names: set[str]) -> list[PlainFormat]:
    return [
        format
        for format in FORMATS.values()
        if isinstance(format, PlainFormat)
        and format.marks
        and names.issuperset(format.first_marks())
    ]


def refuse_wrapped(path: FilePath, names: set[str]) -> None:
    """Refuse a file of no known layout where it is one part of something that converts."""
    folder = Path(path).parent
    if (folder / "config.json").is_file() or program_of(folder):
        raise ConversionError(
            f"{path} is one file of a folder that says how it is read: give {folder}"
        )
    if is_lightning(path):
        raise lightning_refusal(path, names)
    prefixes = {name.partition(".")[0] + "." for name in names}
    for format in layouts_with({name.partition(".")[2] for name in names}):
        if len(prefixes) == 1:
            raise ConversionError(
                f"the tensor names of {path} begin with {prefixes.pop()!r}, without which they "
                f"are those of {format.name}: save them without it, and import that"
            )


def side_of(path: FilePath) -> AnySide:
    """Return the side that reads a folder or a file, ours or theirs."""
    is_folder_of_a_library = not Path(path).is_file() and program_of(path) is None
    if is_folder_of_a_library and (model_type := model_type_of(path)) in OURS:
        return our_side(path, model_type)
    return format_of(path).theirs


def our_model_type(folder: FilePath) -> str:
    """Return the family of a folder of ours, and refuse any other folder."""
    model_type = model_type_of(folder)
    if model_type not in OURS:
        raise ConversionError(
            f"{folder} is {model_type}, not one of {', '.join(OURS)}: import it first"
        )
    return model_type


def our_side(folder: FilePath, model_type: str) -> Library:
    """Return our family, with the class that a folder names where there is more than one."""
    library = OURS[model_type]
    if library in DECODERS:
        return our_decoder(folder, library)
    if not library.is_encoder:
        return library
    return replace(library, model_name=architecture_of(folder, OUR_CLASSES))


def format_for(folder: FilePath, name: str) -> AnyFormat:
    """Return the export format `name` for the model that a folder of ours holds."""
    format = exportable(name)
    refuse_unreadable(folder)
    refuse_others_family(folder, format)
    if isinstance(format, FormatWithHeads):
        return format.writing(folder)
    if isinstance(format, Format) and format.our_classes in DECODERS:
        return written_head(format, folder)
    return format


def refuse_others_family(folder: FilePath, format: AnyFormat) -> None:
    """Refuse an export format of another family than the folder's."""
    model_type = our_model_type(folder)
    family = OURS[model_type]
    if family != format.our_classes:
        fitting = [
            other.name
            for other in FORMATS.values()
            if other.our_classes == family and other.config_to_theirs
        ]
        raise ConversionError(
            f"{folder} is a {model_type}, which {format.name} cannot express: "
            f"choose one of {', '.join(fitting)}"
        )
