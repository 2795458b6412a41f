"""Find the architecture of llama.cpp that can run a model of ours, by trying."""

from dataclasses import dataclass, replace

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError, UnexpressibleError
from ...engine.format import Format, require_one_of
from ...engine.heads import FormatWithHeads
from ...engine.models import WRONG_VALUES
from ...engine.registry import FORMATS
from ...engine.translation import translate
from ..runtime import Source
from .architectures import ARCHITECTURES, Architecture
from .fields import fields_of

MANY = 9  # obstacles; with more of them an architecture is not near


@dataclass(frozen=True)
class Expressed:
    """A model of ours for an architecture: format, their configuration, fields of the file."""

    architecture: Architecture
    format: Format
    theirs: Config
    fields: Fields


def express(source: Source) -> Expressed:
    """Return the model for the first architecture that supports it."""
    kin = [
        one
        for one in ARCHITECTURES
        if FORMATS[one.format].our_classes.config_name == source.library.config_name
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
    ours, format_name = source.config, f"llama.cpp's {architecture.name}"
    format = FORMATS[architecture.format]
    if isinstance(format, FormatWithHeads):
        format = format.writing(source.folder)
    require_one_of(ours, format_name, hidden_act=architecture.acts, **architecture.choices)
    for refuse in architecture.refuses:
        refuse(ours, format_name)
    theirs = translate(ours, format, to_ours=False, dtype=None)
    return Expressed(architecture, format, theirs, fields_of(ours, architecture, format_name))


def count_obstacles(source: Source, architecture: Architecture) -> int:
    """Return how many fields would need other values."""
    ours = source.config
    for count in range(MANY):
        try:
            express_as(replace(source, config=ours), architecture)
            return count
        except UnexpressibleError as error:
            fields = {**ours.to_dict(), error.name: error.values[0]}
            if error.name == "sliding_window":
                fields.pop("layer_types", None)  # which depend on it
        except ConversionError:
            return MANY
        try:
            ours = type(ours).from_dict(fields)
        except WRONG_VALUES:  # which do not go together
            return MANY
    return MANY
