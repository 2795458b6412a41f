"""A model of ours as one of llama.cpp's architectures: found by trying, refused by name."""

from dataclasses import dataclass, replace

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError, UnexpressibleError
from ...engine.format import Format, choose
from ...engine.heads import FormatWithHeads
from ...engine.models import WRONG_VALUES
from ...engine.registry import FORMATS
from ...engine.translation import translate
from ..runtime import Source
from .architectures import ARCHITECTURES, Architecture
from .fields import fields_of

MANY = 9  # obstacles; a model that has more of them is not near at all


@dataclass(frozen=True)
class Expressed:
    """A model of ours in the words of an architecture: its format, their configuration, fields."""

    architecture: Architecture
    form: Format
    theirs: Config
    fields: Fields


def express(source: Source) -> Expressed:
    """The model as the first architecture that can be it."""
    kin = [
        one
        for one in ARCHITECTURES
        if FORMATS[one.form].our_classes.config_name == source.library.config_name
    ]
    refusals = []
    for architecture in kin:
        try:
            return express_as(source, architecture)
        except ConversionError as error:
            refusals.append(error)
    near = [count_obstacles(source, architecture) for architecture in kin]
    nearest = refusals[near.index(min(near))]
    raise ConversionError(f"llama.cpp has no architecture for this model; the nearest: {nearest}")


def express_as(source: Source, architecture: Architecture) -> Expressed:
    ours, reader = source.config, f"llama.cpp's {architecture.name}"
    form = FORMATS[architecture.form]
    if isinstance(form, FormatWithHeads):
        form = form.writing(source.folder)
    choose(ours, reader, hidden_act=architecture.acts, **architecture.choices)
    for refuse in architecture.refuses:
        refuse(ours, reader)
    theirs = translate(ours, form, to_ours=False, dtype=None)
    return Expressed(architecture, form, theirs, fields_of(ours, architecture, reader))


def count_obstacles(source: Source, architecture: Architecture) -> int:
    """How many fields would have to have other values."""
    ours = source.config
    for count in range(MANY):
        try:
            express_as(replace(source, config=ours), architecture)
            return count
        except UnexpressibleError as error:
            fields = {**ours.to_dict(), error.name: error.values[0]}
            if error.name == "sliding_window":
                fields.pop("layer_types", None)  # which say it, too
        except ConversionError:
            return MANY
        try:
            ours = type(ours).from_dict(fields)
        except WRONG_VALUES:  # which do not go together
            return MANY
    return MANY
