"""What is known of each format, and which formats have a word in their name, models or classes."""

import re
from collections.abc import Iterable
from copy import copy

from hf_tformer.command_line import did_you_mean

from .aliases import Config
from .errors import ConversionError, UnexpressibleError
from .format import DECODER, ENCODER, SEQ2SEQ, Format
from .models import unreported
from .plain import Needed, PlainFormat
from .registry import FORMATS
from .translation import AnyFormat

PROGRAMS = "plain PyTorch programs"
FAMILIES = {"decoders": DECODER, "encoder-decoders": SEQ2SEQ, "encoders": ENCODER}
GROUPS = (*FAMILIES, PROGRAMS)
OTHER = object()  # a value that no configuration has


def facts(form: AnyFormat) -> dict[str, object]:
    settings = getattr(form, "settings", {})
    return {
        "name": form.name,
        "group": group_of(form),
        "model_type": form.our_classes.config_class.model_type,
        "models": form.released,
        "read_by": form.remark,
        "export": form.config_to_theirs is not None,
        "asks": {n: v.example for n, v in settings.items() if isinstance(v, Needed)},
        "assumes": {
            n: v for n, v in settings.items() if v is not None and not isinstance(v, Needed)
        },
        "leaves_out": list(dict.fromkeys(form.dropped.values())),
        "only_with": only_with(form),
    }


def group_of(form: AnyFormat) -> str:
    if isinstance(form, PlainFormat):
        return PROGRAMS
    config_name = form.our_classes.config_name
    return next(name for name, library in FAMILIES.items() if library.config_name == config_name)


def only_with(form: AnyFormat) -> dict[str, str]:
    """Fields of theirs that need one value, or that of another field, to be imported.

    They are found by trying: one field after the other takes a value that nothing expects.
    """
    if isinstance(form, PlainFormat):
        return {}
    found = {}
    usual = usual_config(form)
    for name in [name for name in vars(usual) if not name.startswith("_")]:
        config = copy(usual)
        vars(config)[name] = OTHER  # past the checks of the class
        error = complaint(form, config)
        if error and error.values == (OTHER,):
            found[error.name] = name
        elif error and error.name == name:
            found.setdefault(name, one_of(error.values))
    for head in getattr(form, "heads", {}).values():
        for name, values in head.choices.items():
            found[f"{head.theirs}: {name}"] = one_of(values)
    return found


def usual_config(form: Format) -> Config:
    """The defaults of their class, with the one value changed that does not convert."""
    with unreported():
        config = form.theirs.config_class()
    if error := complaint(form, config):
        vars(config)[error.name] = error.values[0]
    return config


def complaint(form: Format, config: Config) -> UnexpressibleError | None:
    try:
        form.config_to_ours(config)
    except UnexpressibleError as error:
        return error
    except Exception:  # whatever else such a value brings about says nothing of the format
        return None


def one_of(values: Iterable[object]) -> str:
    return " or ".join(map(repr, values))


def matching(words: Iterable[str]) -> list[AnyFormat]:
    """The formats that have all these words; without words, all formats."""
    wanted = [part for word in words for part in re.split(r"[\s_/-]+", word.lower()) if part]
    texts = {form.name: searched(form) for form in FORMATS.values()}
    if found := [form for form in FORMATS.values() if all(w in texts[form.name] for w in wanted)]:
        return found
    known = " ".join(texts.values())
    unknown = [word for word in wanted if word not in known]
    hint = did_you_mean(unknown[0], re.findall(r"[\w.]+", known)) if unknown else ""
    raise ConversionError(
        f"no format has {' and '.join(map(repr, unknown or wanted))} in its name, models or "
        f"classes{hint}"
    )


def searched(form: AnyFormat) -> str:
    """Also without what some write between the parts of a name and others do not."""
    text = " ".join((form.name, form.released, form.remark, *getattr(form, "classes", ()))).lower()
    return f"{text} {re.sub('[_-]', '', text)}"
