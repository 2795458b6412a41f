"""A layout that its user declares: `--rules FILE`, in the language of our own tables.

CONTRIBUTING.md shows one under "A layout of your own". The file is a program of the user's and runs
as such. Its reference is what proves the conversion; without one there is nothing to compare with.
"""

import runpy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import torch

from hf_tformer.opening import tied_as_list

from .aliases import Fields
from .errors import ConversionError
from .format import DECODER, SEQ2SEQ
from .models import Reader
from .plain import PlainFormat
from .rules import Rule

FAMILIES = {"decoder": DECODER, "seq2seq": SEQ2SEQ}


class AsInFile:
    """Stands for a model whose names and shapes are those of the file."""

    def __init__(self, config):
        self.shapes = config.shapes

    def state_dict(self, keep_vars: bool = True) -> dict[str, torch.Tensor]:
        return {name: torch.empty(shape, device="meta") for name, shape in self.shapes.items()}


@dataclass(frozen=True)
class UserFormat(PlainFormat):
    """The names and shapes are taken from the file; the module is the user's own."""

    user_reference: object = field(default=None)

    def build(self, config: SimpleNamespace) -> AsInFile:
        return AsInFile(config)

    def load(self, path: str | Path, settings: Fields | None = None) -> Reader:
        try:
            model = self.user_reference()
            self.fill(model, self.checkpoint(path), path)
        except ConversionError:
            raise
        except Exception as error:  # whatever their program raises
            reason = tied_as_list(error) or repr(error)
            raise ConversionError(f"reference() of {self.name}: {reason}") from error
        return self.reader(model, self.ours_of(self.load_config(path, settings)))


def read_rules(path: str | Path, verify: bool) -> UserFormat:
    """The format that a file of the user's declares."""
    if not Path(path).is_file():
        raise ConversionError(f"{path} is missing: give a Python file with RULES, FAMILY, CONFIG")
    try:
        said = runpy.run_path(str(path))
    except Exception as error:  # whatever their program raises
        raise ConversionError(f"{path} does not run: {error!r}") from error
    for name, kind in {"RULES": (tuple, list), "FAMILY": str, "CONFIG": dict}.items():
        if not isinstance(said.get(name), kind):
            raise ConversionError(f"{path} has no {name}: it needs RULES, FAMILY and CONFIG")
    if said["FAMILY"] not in FAMILIES:
        raise ConversionError(
            f"FAMILY is {said['FAMILY']!r} in {path}: choose one of {', '.join(FAMILIES)}"
        )
    if not all(isinstance(rule, Rule) for rule in said["RULES"]):
        raise ConversionError(f"RULES in {path} holds something else than Rule(ours, theirs)")
    if verify and not callable(said.get("reference")):
        raise ConversionError(
            f"{path} has no reference(), so nothing proves the conversion: add one that returns "
            "the module that reads these weights, or convert with --no-verify"
        )
    config = said["CONFIG"]
    return UserFormat(
        name=Path(path).stem,
        remark="a layout of its user's",
        rules=tuple(said["RULES"]),
        config_to_ours=lambda theirs: config,
        our_classes=FAMILIES[said["FAMILY"]],
        reference=AsInFile,
        sizes=lambda checkpoint, settings: {
            "shapes": {name: checkpoint.shape(name) for name in checkpoint.names()}
        },
        settings={},
        marks=(),
        ignored=said.get("IGNORED", {}),
        user_reference=said.get("reference"),
    )
