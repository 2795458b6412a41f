"""A layout that its user declares with `--rules FILE`, by the same rules as our own tables.

CONTRIBUTING.md has an example under "A layout of your own". The file is the user's program and runs
as such. Its reference proves the conversion.
"""

import runpy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from hf_tformer.opening import tied_as_list

from .aliases import Fields, FilePath, State
from .errors import ConversionError
from .format import DECODER, ENCODER, MIXTURE, SEQ2SEQ
from .heads import MASKED, without_prefixes
from .models import Library, LoadedModel
from .plain import PlainFormat
from .rules import Rule

FAMILIES = {
    "decoder": DECODER,
    "mixture": MIXTURE,
    "seq2seq": SEQ2SEQ,
    "encoder": ENCODER,  # its reference returns hidden states
    "masked-lm": replace(ENCODER, model_name=MASKED),
}


class AsInFile:
    """A stand-in for a model, with the names and shapes of the file."""

    def __init__(self, config: SimpleNamespace) -> None:
        self.config = config

    def state_dict(self, keep_vars: bool = True) -> State:
        shapes = self.config.shapes.items()
        return {name: torch.empty(shape, device="meta") for name, shape in shapes}


@dataclass(frozen=True)
class UserFormat(PlainFormat):
    """A layout with the names and shapes of the file, and a module of the user's."""

    user_reference: Any = None  # a function without arguments

    @property
    def answers(self) -> str:
        """Name what the reference returns, for the result of a conversion."""
        return self.our_classes.answers

    def build(self, config: SimpleNamespace) -> Any:
        return AsInFile(config)

    def load(self, path: FilePath, settings: Fields | None = None) -> LoadedModel:
        try:
            model = self.user_reference()
            self.fill(model, self.checkpoint(path), path)
        except ConversionError:
            raise
        except Exception as error:  # of the user's program
            reason = tied_as_list(error) or repr(error)
            raise ConversionError(f"reference() of {self.name}: {reason}") from error
        loaded = self.loaded_model(model, self.ours_of(self.load_config(path, settings)))
        return replace(loaded, is_encoder=self.our_classes.is_encoder)


def read_rules(path: FilePath, verify: bool) -> UserFormat:
    """Return the format that a file of the user's declares."""
    if not Path(path).is_file():
        raise ConversionError(f"{path} is missing: give a Python file with RULES, FAMILY, CONFIG")
    try:
        declared = runpy.run_path(str(path))
    except Exception as error:  # of the user's program
        raise ConversionError(f"{path} does not run: {error!r}") from error
    kinds: dict[str, Any] = {"RULES": (tuple, list), "FAMILY": str, "CONFIG": dict}
    for name, kind in kinds.items():
        if not isinstance(declared.get(name), kind):
            raise ConversionError(f"{path} has no {name}: it needs RULES, FAMILY and CONFIG")
    if declared["FAMILY"] not in FAMILIES:
        raise ConversionError(
            f"FAMILY is {declared['FAMILY']!r} in {path}: choose one of {', '.join(FAMILIES)}"
        )
    if not all(isinstance(rule, Rule) for rule in declared["RULES"]):
        raise ConversionError(
            f"RULES in {path} holds other things than rules: write Rule(ours, theirs)"
        )
    if verify and not callable(declared.get("reference")):
        raise ConversionError(
            f"{path} has no reference(), which proves the conversion: add one that returns the "
            "module that reads these weights, or convert with --no-verify"
        )
    family = FAMILIES[declared["FAMILY"]]
    # A plain file holds no ids, and those of our defaults would end what the user generates.
    ids = [name for name in family.config_class.__annotations__ if name.endswith("_token_id")]
    config = {**dict.fromkeys(ids), **declared["CONFIG"]}
    return UserFormat(
        name=Path(path).stem,
        remark="a layout of its user's",
        rules=rules_for(family, declared["RULES"]),
        config_to_ours=lambda theirs: config,
        our_classes=family,
        reference=AsInFile,
        sizes=lambda checkpoint, settings: {
            "shapes": {name: checkpoint.shape(name) for name in checkpoint.names()}
        },
        settings={},
        marks=(),
        ignored=declared.get("IGNORED", {}),
        user_reference=declared.get("reference"),
    )


def rules_for(family: Library, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules; a base model has our names without the prefix that they have elsewhere."""
    if family is not ENCODER:
        return tuple(rules)
    prefix = family.model_class.base_model_prefix
    return tuple(without_prefixes(rule, prefix, "") for rule in rules)
