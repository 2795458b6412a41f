"""What a format is, and the vocabulary of its two configuration functions.

Fields that matter in training alone (dropout between layers, label smoothing, initialisation) are
carried over if both sides have a name for them, and omitted otherwise. Fields that change a logit
are carried over or refused.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import transformers

import hf_tformer

from .aliases import Config, Fields
from .errors import ConversionError, UnexpressibleError
from .models import Library
from .rules import Rule

# The rules, or a function that gives them for a configuration of theirs.
Table = tuple[Rule, ...] | Callable[[Config], tuple[Rule, ...]]


@dataclass(frozen=True)
class Format:
    """A model_type of transformers: a table, and two functions for the configuration.

    The functions take a configuration object of one side and return the fields of the other.
    `classes` are the names of the configuration and the model in transformers, `our_classes` is our
    family. `dropped` are tensors of theirs that have no place in ours and are reported when they
    are omitted. `first_position` is the number of positions that are kept for padding. `sinusoids`
    are frozen tables, which a file may lack or hold rounded: their model computes them.
    `released` are the models that people know, for the list of formats. `absent_head` is the class
    that config.json names where the file holds its body alone. The rules name theirs as files do,
    where transformers renames or joins tensors as it saves.
    """

    name: str
    rules: Table
    config_to_ours: Callable[[Config], Fields]
    config_to_theirs: Callable[[Config], Fields]
    classes: tuple[str, str]
    our_classes: Library
    ignored: dict[str, str] = field(default_factory=dict)  # their pattern → why nothing is lost
    zero_if_absent: tuple[str, ...] = ()  # theirs, which transformers fills with zeros too
    dropped: dict[str, str] = field(default_factory=dict)  # their pattern → what it was for
    first_position: Callable[[Config], int] = lambda config: 0
    sinusoids: tuple[str, ...] = ()  # theirs
    released: str = ""
    absent_head: str = ""
    has_draft_layers: bool = False  # files may hold layers behind the last, which draft tokens

    @property
    def theirs(self) -> Library:
        return Library(
            transformers,
            *self.classes,
            self.our_classes.is_encoder,
            tuple(self.dropped),
            self.first_position,
            self.sinusoids,
        )

    @property
    def remark(self) -> str:
        return f"{self.classes[1]} of transformers"

    def table(self, theirs: Config) -> tuple[Rule, ...]:
        """Return the rules for a configuration of theirs."""
        return self.rules(theirs) if callable(self.rules) else self.rules


Value = TypeVar("Value")

DECODER = Library(hf_tformer, "TformerDecoderConfig", "TformerDecoderForCausalLM")
MIXTURE = Library(hf_tformer, "TformerMixtureConfig", "TformerMixtureForCausalLM")
SEQ2SEQ = Library(hf_tformer, "TformerSeq2SeqConfig", "TformerSeq2SeqForConditionalGeneration")
# The base model; folders hold it with one of several heads (heads.py).
ENCODER = Library(hf_tformer, "TformerEncoderConfig", "TformerEncoderModel", is_encoder=True)
OURS = {  # by model_type
    "tformer_decoder": DECODER,
    "tformer_encoder": ENCODER,
    "tformer_mixture": MIXTURE,
    "tformer_seq2seq": SEQ2SEQ,
}
DECODERS = (DECODER, MIXTURE)  # whose folders hold one of several heads (decoder_heads.py)

# Fields of ours for which a format may have one switch.
BIASES = ("attention_bias", "attention_output_bias", "mlp_bias")


def require(config: Config, format_name: str, **needed: object) -> None:
    """Refuse a configuration whose fields have other values than the given ones."""
    require_one_of(config, format_name, **{name: (value,) for name, value in needed.items()})


def require_one_of(config: Config, format_name: str, **choices: Iterable[object]) -> None:
    """Refuse a configuration whose fields have other values than these."""
    for name, values in choices.items():
        actual = getattr(config, name, None)
        if actual not in values:
            raise UnexpressibleError(name, actual, format_name, tuple(values))


def require_ids(ours: Config, format_name: str, *names: str) -> None:
    """Refuse ids that are None where a format does not know None."""
    for name in names:
        if getattr(ours, name) is None:
            raise ConversionError(
                f"{name} is None, in whose place {format_name} puts ids of its own: set the "
                "token's id"
            )


choose = require_one_of  # its earlier name


def same(*names: str) -> dict[str, str]:
    """Return a mapping of names that are equal on both sides."""
    return {name: name for name in names}


def without(fields: dict[str, Value], *names: str) -> dict[str, Value]:
    """Return a copy that lacks these names."""
    return {name: value for name, value in fields.items() if name not in names}


def carry(config: Config, names: Iterable[str] | dict[str, str]) -> Fields:
    """Return the values of fields, under other names where `names` maps old → new."""
    pairs = names.items() if isinstance(names, dict) else ((name, name) for name in names)
    return {new: getattr(config, old) for old, new in pairs}


def inverted(names: dict[str, str]) -> dict[str, str]:
    return {new: old for old, new in names.items()}


def plain_attention_scale(config: Config, format_name: str) -> None:
    """Refuse any attention scale but the usual one, which may be given as None or as a number."""
    if config.attention_scale not in (None, config.head_dim**-0.5):
        require(config, format_name, attention_scale=None)


def layer_types_of(ours: Config) -> list[str]:
    """Return the kind of each layer, which ours names only if some layer has a window."""
    return list(getattr(ours, "layer_types", ["full_attention"] * ours.num_hidden_layers))


def windows(ours: Config) -> Fields:
    """Return the window for formats that name each layer's kind and always have a window."""
    window = {"sliding_window": ours.sliding_window} if ours.sliding_window else {}
    return {"layer_types": layer_types_of(ours), **window}


def require_one_kind_of_layer(ours: Config, format_name: str) -> None:
    kinds = set(getattr(ours, "layer_types", ()))
    if len(kinds) > 1:
        raise ConversionError(
            f"layer_types holds {sorted(kinds)}, but {format_name} has one kind of layer: "
            "export to qwen2 or qwen3, whose layers may differ"
        )


def meaning(config: Config, name: str) -> Any:
    """Return the value of a field, in one spelling where there are two."""
    value = getattr(config, name, None)
    if name == "attention_scale" and value is None:
        return config.head_dim**-0.5
    if name == "no_rope_layers" and value and all(value):
        return None
    return value
