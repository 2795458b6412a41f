"""Translate a configuration to the other side, and refuse what would be lost on the way."""

import torch

from .aliases import Config
from .errors import ConversionError, UnexpressibleError
from .format import Format, meaning
from .models import WRONG_VALUES, Library, first_cause
from .plain import PlainFormat

AnyFormat = Format | PlainFormat
AnySide = Library | PlainFormat  # what reads a checkpoint of either


def translate(config: Config, form: AnyFormat, to_ours: bool, dtype: torch.dtype | None) -> Config:
    """The configuration of the other side, or a refusal that names the field."""
    try:
        fields = (form.config_to_ours if to_ours else form.config_to_theirs)(config)
    except ConversionError:
        raise
    except WRONG_VALUES as error:
        raise ConversionError(f"the sizes do not fit: {first_cause(error)}") from error
    side = form.our_classes if to_ours else form.theirs
    made = side.make_config(fields, dtype or config.dtype)
    if not to_ours:
        refuse_what_is_lost(config, made, form)
    return made


# Of our fields, those that few formats have a word for.
RARE = ("score_bias", "scale_embedding", "qk_norm", "no_rope_layers", "parallel_residual")
RARE += ("residual_multiplier", "attn_logit_softcapping", "final_logit_softcapping")
RARE += ("norm_position",)


def refuse_what_is_lost(ours: Config, theirs: Config, form: AnyFormat) -> None:
    """Imported again, their configuration has to say what ours says."""
    back = translate(theirs, form, to_ours=True, dtype=ours.dtype)
    for name in RARE:
        actual, expected = meaning(ours, name), meaning(back, name)
        if actual != expected:
            raise UnexpressibleError(name, actual, form.name, (expected,))
