"""Translate a configuration to the other side, and refuse what would be lost on the way."""

import torch

from .aliases import Config, Fields
from .errors import ConversionError, UnexpressibleError
from .format import Format, meaning
from .models import WRONG_VALUES, Library, first_cause
from .plain import PlainFormat

AnyFormat = Format | PlainFormat
AnySide = Library | PlainFormat  # what reads a checkpoint of either


def translate(
    config: Config, format: AnyFormat, to_ours: bool, dtype: torch.dtype | None
) -> Config:
    """Return the configuration of the other side, or refuse it by the name of a field."""
    function = format.config_to_ours if to_ours else format.config_to_theirs
    assert function is not None, f"{format.name} is read only"
    try:
        fields = function(config)
    except ConversionError:
        raise
    except WRONG_VALUES as error:
        raise ConversionError(f"the sizes do not fit: {first_cause(error)}") from error
    side = format.our_classes if to_ours else format.theirs
    if to_ours:
        fields = within_vocabulary(fields)
    made = side.make_config(fields, dtype or config.dtype)
    if not to_ours:
        refuse_what_is_lost(config, made, format)
    return made


def within_vocabulary(fields: Fields) -> Fields:
    """Return fields without ids that no token has: defaults beyond a small vocabulary.

    Beside such a padding id transformers builds no model.
    """
    rows = fields["vocab_size"]
    kept = dict(fields)
    for name, value in fields.items():
        is_id = name.endswith("_token_id") and name != "pad_token_id"
        if is_id and ids_beyond(value, rows):
            inside = [token for token in as_list(value) if token < rows]
            kept[name] = inside or None
    return kept


def ids_beyond(value: object, rows: int) -> list[int]:
    return [token for token in as_list(value) if token >= rows]


def as_list(value: object) -> list[int]:
    """Return the ids of a field, which holds one, several or none."""
    values = value if isinstance(value, list | tuple) else [value]
    return [token for token in values if isinstance(token, int)]


# Fields of ours that few formats have a word for.
RARE = (
    *("score_bias", "scale_embedding", "qk_norm", "no_rope_layers", "parallel_residual"),
    *("residual_multiplier", "attn_logit_softcapping", "final_logit_softcapping", "norm_position"),
)


def refuse_what_is_lost(ours: Config, theirs: Config, format: AnyFormat) -> None:
    """Refuse a configuration that, imported again, differs from ours in one of these fields."""
    back = translate(theirs, format, to_ours=True, dtype=ours.dtype)
    for name in RARE:
        actual, expected = meaning(ours, name), meaning(back, name)
        if actual != expected:
            raise UnexpressibleError(name, actual, format.name, (expected,))
