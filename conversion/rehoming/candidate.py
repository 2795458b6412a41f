"""Write the tensors of a folder as those of a class that needs no code of others."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import hf_tformer

from ..engine.aliases import Fields, NamedTensors
from ..engine.checkpoints import Checkpoint, write_checkpoint
from ..engine.convert import numbers
from ..engine.errors import ConversionError
from ..engine.models import WRONG_VALUES, Library, first_cause
from ..engine.rules import (
    Rule,
    SavedTensors,
    Step,
    check_shape,
    convert,
    is_ignored,
    matching,
    plan,
)
from .foreign_folder import ForeignFolder
from .renaming import ASIDE, Renaming
from .table import RENAMINGS

SHOWN = 3


@dataclass(frozen=True)
class Candidate:
    """A class that may compute what the code of a folder does, filled with its tensors."""

    renaming: Renaming
    model: PreTrainedModel  # without memory
    steps: list[Step]

    @property
    def name(self) -> str:
        return type(self.model).__name__

    @property
    def library(self) -> str:
        return side_of(self.model).library.__name__

    def omitted(self, foreign: ForeignFolder) -> Iterator[str]:
        """Yield a sentence on each part of theirs that has no place here."""
        names = foreign.checkpoint.names()
        for pattern, what in self.renaming.dropped.items():
            if found := [name for name in names if is_ignored((pattern,), name)]:
                yield f"left out: {found[0]} ({what})"
        for name, sentence in self.renaming.limits.items():
            if foreign.fields.get(name):
                yield f"left out: {sentence}"

    def write(self, folder: Path, checkpoint: Checkpoint) -> None:
        """Write weights and description, tensor by tensor."""
        saved = SavedTensors.of(self.model)
        tensors = convert(self.steps, checkpoint.read, self.model.config, to_ours=True)
        try:
            write_checkpoint(folder, fitting(tensors, saved))
        except RuntimeError as error:  # of torch, where a tensor cannot be split so
            raise ConversionError(f"the tensors have other sizes: {first_cause(error)}") from error
        side_of(self.model).save_description(self.model, folder)


def candidates(foreign: ForeignFolder) -> Iterator[Candidate | str]:
    """Yield classes that may compute the same, or a sentence on why one of them cannot."""
    found = [one for one in RENAMINGS if one.is_for(foreign.fields, foreign.code)]
    own_type = foreign.fields.get("model_type")
    if not found and isinstance(own_type, str) and own_type in CONFIG_MAPPING:
        found = [Renaming(own_type, (own_type,))]  # the code is one that transformers took in
    for renaming in found:
        try:
            yield candidate(renaming, foreign)
        except ConversionError as error:
            yield f"{renaming.target}: {error}"
        except KeyError as error:
            yield f"{renaming.target}: config.json lacks {error}"


def candidate(renaming: Renaming, foreign: ForeignFolder) -> Candidate:
    config_class = CONFIG_MAPPING[renaming.target]
    known = set(config_class().to_dict())
    if not renaming.fields and renaming.target in renaming.model_types:
        known = set(foreign.fields)  # the same configuration
    fields = renaming.of_target(foreign.fields, foreign.checkpoint, known)
    stored = {"dtype": foreign.config.get("dtype") or foreign.config.get("torch_dtype")}
    is_tied = foreign.config.get("tie_word_embeddings", True)
    model = built(config_class, fields, foreign.auto, **stored, tie_word_embeddings=is_tied)
    rules = (*renaming.rules, *renaming.numbered(foreign.fields))
    if is_tied and not agree(model, rules, foreign.checkpoint):
        model = built(config_class, fields, foreign.auto, **stored, tie_word_embeddings=False)
    steps = planned(model, rules)
    account(steps, renaming, SavedTensors.of(model), foreign.checkpoint)
    return Candidate(renaming, model, steps)


def built(config_class: Any, fields: Fields, auto: str, **more: object) -> PreTrainedModel:
    models = getattr(transformers, auto)._model_mapping
    try:
        config = config_class(**{k: v for k, v in fields.items() if k not in ASIDE}, **more)
        with torch.device("meta"):
            return models[config_class](config)
    except KeyError as error:
        raise ConversionError(f"it has no {auto}") from error
    except (*WRONG_VALUES, AssertionError) as error:
        raise ConversionError(first_cause(error)) from error


def side_of(model: PreTrainedModel) -> Library:
    kind = type(model)
    library = transformers if kind.__module__.startswith("transformers") else hf_tformer
    return Library(library, type(model.config).__name__, kind.__name__)


def agree(model: PreTrainedModel, rules: tuple[Rule, ...], checkpoint: Checkpoint) -> bool:
    """Return whether tensors that the model ties are absent from the file, or hold the same."""
    for alias, first in SavedTensors.of(model).aliases.items():
        names = [source_of(rules, name) for name in (alias, first)]
        if names[0] not in checkpoint.places:
            continue
        if not torch.equal(*(checkpoint.read(name) for name in names)):
            return False
    return True


def source_of(rules: tuple[Rule, ...], name: str) -> str:
    (step,) = plan(with_same(rules, [name]), [name])
    return step.theirs[0]


def planned(model: PreTrainedModel, rules: tuple[Rule, ...]) -> list[Step]:
    names = list(SavedTensors.of(model).shapes)
    return plan(with_same(rules, names), names)


def with_same(rules: tuple[Rule, ...], names: list[str]) -> list[Rule]:
    """Return the rules with one for each tensor that keeps its name."""
    left = [name for name in names if not any(matching(rule, name) for rule in rules)]
    return [*rules, *(Rule(name, name) for name in left)]


def account(
    steps: list[Step], renaming: Renaming, saved: SavedTensors, checkpoint: Checkpoint
) -> None:
    """Refuse tensors of the file that have no place, and places without a tensor."""
    used = {name for step in steps for name in step.theirs}
    held = set(checkpoint.names())
    tied = {source_of(renaming.rules, alias) for alias in saved.aliases}
    over = {n for n in held - used - tied if not is_ignored(renaming.dropped, n)}
    for what, names in (("the file lacks", used - held), ("it has no place for", over)):
        if names:
            shown = ", ".join(sorted(names)[:SHOWN])
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            raise ConversionError(f"{what} {shown}{more}")


def fitting(tensors: NamedTensors, saved: SavedTensors) -> NamedTensors:
    for name, tensor in tensors:
        check_shape(name, tensor.shape, saved)
        yield name, numbers(name, tensor)
        del tensor  # before the next one is read
