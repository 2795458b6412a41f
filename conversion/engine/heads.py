"""Formats whose folders hold one of several models: a body, and the head that config.json names.

Each head makes a Format of its own with one class on either side.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .aliases import Config, Fields, FilePath
from .checkpoints import open_checkpoint, read_json
from .errors import ConversionError, UnexpressibleError
from .format import ENCODER, Format, Table, meaning, require_one_of
from .rules import Rule, SavedTensors, as_tuple, modern
from .translation import translate, within_vocabulary


@dataclass(frozen=True)
class Head:
    """A head on top of a body: its class in transformers, our class, and its tensors.

    The class differs from the one in config.json where a part of that has no place in ours; the
    format drops this part. `choices` are the values that fields of their configuration may have
    beside this head, `fields` are values of ours for this head alone.
    """

    theirs: str
    ours: str
    rules: Table = ()
    choices: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class FormatWithHeads(Format):
    """A format of several models. `rules` are those of the body, named as beside a head.

    `classes` are the names of the configuration and the base model. `heads` maps the names in
    config.json; of two heads with one class of ours the first is exported.
    """

    rules: tuple[Rule, ...]
    prefix: str = ""  # of the body's names in theirs, beside a head
    heads: dict[str, Head] = field(default_factory=dict)

    @property
    def remark(self) -> str:
        return f"{', '.join(self.heads)} of transformers"

    def reading(self, folder: FilePath) -> Format:
        """Return the format of the head that a folder of theirs names."""
        name = architecture_of(folder, self.heads)
        chosen = self.of_head(self.heads[name])
        if chosen.classes[1] == self.classes[1] or holds_head(chosen, folder):
            return chosen
        return replace(self.of_body(), absent_head=name)

    def writing(self, folder: FilePath) -> Format:
        """Return the format of the head that a folder of ours names."""
        name = architecture_of(folder, [head.ours for head in self.heads.values()])
        return self.of_head(next(head for head in self.heads.values() if head.ours == name))

    def of_body(self) -> Format:
        """Return the format of the base model."""
        return self.of_head(self.heads[self.classes[1]])

    def of_head(self, head: Head) -> Format:
        def to_ours(theirs: Config) -> Fields:
            require_one_of(theirs, "hf_tformer", **head.choices)
            fields = {**self.config_to_ours(theirs), **head.fields}
            refuse_learned_activations(fields)
            return fields

        def to_theirs(ours: Config) -> Fields:
            fields = self.config_to_theirs(ours)
            theirs = self.theirs.make_config(fields, ours.dtype)
            require_one_of(theirs, self.classes[0], **head.choices)
            self.refuse_what_is_lost(ours, theirs, head)
            return fields

        rules = self.rules_of(head)
        read = set() if callable(rules) else {name for r in rules for name in as_tuple(r.theirs)}
        return Format(
            name=self.name,
            rules=rules,
            config_to_ours=to_ours,
            config_to_theirs=to_theirs,
            classes=(self.classes[0], head.theirs),
            our_classes=replace(self.our_classes, model_name=head.ours),
            ignored=self.ignored,
            dropped={name: what for name, what in self.dropped.items() if name not in read},
            first_position=self.first_position,
        )

    def rules_of(self, head: Head) -> Table:
        """Return the whole table; a base model has the names of the body, without a prefix."""
        if head.ours == self.our_classes.model_name:
            ours = self.our_classes.model_class.base_model_prefix
            return tuple(without_prefixes(rule, ours, self.prefix) for rule in self.rules)
        rules = head.rules
        return (
            (lambda theirs: (*self.rules, *rules(theirs)))
            if callable(rules)
            else (*self.rules, *rules)
        )

    def refuse_what_is_lost(self, ours: Config, theirs: Config, head: Head) -> None:
        """Refuse what differs from ours after a second import, in fields that the head reads."""
        fields = within_vocabulary(self.config_to_ours(theirs))
        back = self.our_classes.make_config(fields, ours.dtype)
        names = (*self.our_classes.config_class.__annotations__, *UNDECLARED)
        skipped = TRAINING_ALONE | unread_fields(ours, head.ours)
        for name in names:
            actual, expected = (meaning(config, name) for config in (ours, back))
            if name not in skipped and actual != expected:
                raise UnexpressibleError(name, actual, self.classes[0], (expected,))


def holds_head(format: Format, folder: FilePath) -> bool:
    """Return whether a file holds a tensor of the head, if that is more than a tied table."""
    theirs = format.theirs
    config = theirs.load_config(folder)
    translate(config, format, True, None)  # which refuses by field what could not be built
    model = theirs.build(config)
    body = f"{model.base_model_prefix}."
    saved = SavedTensors.of(model).shapes
    head = [name for name in saved if not name.startswith(body)]
    names = {modern(name) for name in open_checkpoint(folder).names()}
    return not head or any(name in names for name in head)


BASE = ENCODER.model_name
MASKED, TEXTS, TOKENS, ANSWERS = (
    f"TformerEncoderFor{task}"
    for task in ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")
)
OUR_CLASSES = (BASE, MASKED, TEXTS, TOKENS, ANSWERS)
HEAD_FIELDS = {
    "head_act",
    "lm_head_bias",
    "tie_word_embeddings",
    "classifier_act",
    "classifier_norm",
    "classifier_pooling",
    "head_bias",
}


def unread_fields(ours: Config, class_name: str) -> set[str]:
    """Return the fields of heads that one of our classes does not read."""
    read: set[str] = {
        BASE: set(),
        MASKED: {"head_act", "lm_head_bias", "tie_word_embeddings"},
        TEXTS: {"classifier_pooling", "classifier_act"},
    }.get(class_name, {"classifier_norm"})
    if class_name == MASKED and ours.head_act:
        read = read | {"head_bias"}
    if class_name == TEXTS and ours.classifier_act:
        read = read | {"classifier_norm", "head_bias"}
    if class_name in (TOKENS, ANSWERS) and ours.classifier_norm:
        read = read | {"classifier_act", "head_bias"}
    return HEAD_FIELDS - read


# Attributes that exist only where they mean something.
UNDECLARED = ("layer_types", "rope_parameters")
TRAINING_ALONE = {
    "dropout",
    "attention_dropout",
    "label_smoothing",
    "z_loss",
    "return_logits_in_training",
    "initializer",
    "initializer_range",
}


LEARNED = ("prelu", "xielu")


def refuse_learned_activations(fields: Fields) -> None:
    """Refuse activations with weights, which no table has and no released encoder uses."""
    for name in ("hidden_act", "head_act", "classifier_act"):
        if fields.get(name) in LEARNED:
            raise ConversionError(
                f"{name} is {fields[name]!r}, for whose weights no table has a rule: only "
                "activations without weights convert"
            )


def without_prefixes(rule: Rule, ours: str, theirs: str) -> Rule:
    return with_prefixes(rule, (f"{ours}.", ""), (f"{theirs}.", ""))


def with_prefixes(rule: Rule, ours: tuple[str, str], theirs: tuple[str, str]) -> Rule:
    """Return a rule whose names have other prefixes, each given as (old, new)."""

    def renamed(names: str | tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
        return tuple(
            new + name.removeprefix(old) if name.startswith(old) else name
            for name in as_tuple(names)
        )

    return Rule(renamed(rule.ours, *ours), renamed(rule.theirs, *theirs), rule.transform)


def only_architecture(folder: FilePath) -> object:
    """Return what config.json names as the class of the weights, None unless it is one."""
    named = read_json(Path(folder) / "config.json").get("architectures")
    return named[0] if isinstance(named, list) and len(named) == 1 else None


def architecture_of(folder: FilePath, known: Iterable[str]) -> str:
    """Return the class that config.json names, if it is one of the supported ones."""
    path = Path(folder) / "config.json"
    name = only_architecture(folder)
    if isinstance(name, str) and name in known:
        return name
    named = read_json(path).get("architectures")
    choices = ", ".join(dict.fromkeys(known))
    raise ConversionError(
        f"architectures is {named!r} in {path}, which converts only where it names one of "
        f"{choices}: correct it, or save the model with another head"
    )
