"""The facts of each format, and a search by words in its name, models or classes."""

import re
from collections.abc import Iterable
from copy import copy
from typing import Any

from hf_tformer.command_line import did_you_mean

from .aliases import Config
from .errors import ConversionError, MissingClassError, UnexpressibleError
from .format import DECODER, ENCODER, MIXTURE, SEQ2SEQ, Format
from .models import unreported
from .plain import Needed, PlainFormat
from .registry import FORMATS
from .translation import AnyFormat

PROGRAMS = "plain PyTorch programs"
FAMILIES = {
    "decoders": DECODER,
    "mixtures of experts": MIXTURE,
    "encoder-decoders": SEQ2SEQ,
    "encoders": ENCODER,
}
GROUPS = (*FAMILIES, PROGRAMS)
OTHER = object()  # a value that no configuration has


def facts(format: AnyFormat) -> dict[str, Any]:
    settings = getattr(format, "settings", {})
    is_described = getattr(format, "is_described", False)
    return {
        "name": format.name,
        "group": group_of(format),
        "model_type": format.our_classes.config_class.model_type,
        "models": format.released,
        "read_by": format.remark,
        "export": format.config_to_theirs is not None,
        "asks": {n: v.example for n, v in settings.items() if isinstance(v, Needed)},
        "assumes": {
            n: v
            for n, v in settings.items()
            if v is not None and not isinstance(v, Needed) and not is_described
        },
        "leaves_out": list(dict.fromkeys(format.dropped.values())),
        "only_with": only_with(format),
    }


def group_of(format: AnyFormat) -> str:
    if isinstance(format, PlainFormat):
        return PROGRAMS
    config_name = format.our_classes.config_name
    return next(name for name, library in FAMILIES.items() if library.config_name == config_name)


def only_with(format: AnyFormat) -> dict[str, str]:
    """Return the fields of theirs that import with one value, or that of another field, alone.

    They are found by trying: one field after the other gets a value that no format supports.
    """
    if isinstance(format, PlainFormat):
        return {}
    found = {}
    try:
        usual = usual_config(format)
    except MissingClassError:  # of a model that is newer than the transformers that is installed
        return {}
    for name in [name for name in vars(usual) if not name.startswith("_")]:
        config = copy(usual)
        vars(config)[name] = OTHER  # past the checks of the class
        error = complaint(format, config)
        if error and error.values == (OTHER,):
            found[error.name] = name
        elif error and error.name == name:
            found.setdefault(name, one_of(error.values))
    for head in getattr(format, "heads", {}).values():
        for name, values in head.choices.items():
            found[f"{head.theirs}: {name}"] = one_of(values)
    return found


def usual_config(format: Format) -> Config:
    """Return the defaults of their class, with the one value changed that does not convert."""
    with unreported():
        config = format.theirs.config_class()
    if error := complaint(format, config):
        vars(config)[error.name] = error.values[0]
    return config


def complaint(format: Format, config: Config) -> UnexpressibleError | None:
    try:
        format.config_to_ours(config)
    except UnexpressibleError as error:
        return error
    except Exception:  # such a value may fail anywhere
        return None
    return None


def one_of(values: Iterable[object]) -> str:
    return " or ".join(map(repr, values))


def matching(words: Iterable[str]) -> list[AnyFormat]:
    """Return the formats that have all these words; without words, all formats."""
    wanted = [part for word in words for part in re.split(r"[\s_/-]+", word.lower()) if part]
    texts = {format.name: searched(format) for format in FORMATS.values()}
    found = [FORMATS[name] for name, text in texts.items() if all(w in text for w in wanted)]
    if found:
        return found
    known = " ".join(texts.values())
    unknown = [word for word in wanted if word not in known]
    hint = did_you_mean(unknown[0], re.findall(r"[\w.]+", known)) if unknown else ""
    if "gguf" in wanted:
        hint = (
            ": `tformer convert import FILE.gguf NEW` reads a file, `export --to gguf` writes one"
        )
    raise ConversionError(
        f"no format has {' and '.join(map(repr, unknown or wanted))} in its name, models or "
        f"classes{hint}"
    )


def searched(format: AnyFormat) -> str:
    """Return the searched words of a format, also without hyphens and underscores."""
    names = (format.name, format.released, format.remark, *getattr(format, "classes", ()))
    text = " ".join(names).lower()
    return f"{text} {re.sub('[_-]', '', text)}"
