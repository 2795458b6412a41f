"""Layouts of plain PyTorch programs, which no installed library reads.

A layout is declared like a format, by a table and two functions for the configuration. It adds
three things: how sizes follow from the shapes of tensors, settings that no shape determines, and a
short module of our own that computes what the original computes. That module has the names and
shapes to convert from, and the logits that prove the conversion.
"""

import json
from ast import literal_eval
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import PreTrainedConfig

from .aliases import Batch, Config, Fields, FilePath
from .checkpoints import Checkpoint, open_checkpoint, open_file, read_json
from .errors import ConversionError
from .format import Table
from .models import WRONG_VALUES, Library, LoadedModel, first_cause
from .rules import Rule, is_ignored, matches, shared_names

# Settings of the vocabulary, which no plain file holds; most programs have no names for them.
TOKEN_IDS = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


@dataclass(frozen=True)
class Needed:
    """A setting without a default, and an example for the message that asks for it."""

    example: object


@dataclass(frozen=True)
class PlainFormat:
    """A layout of tensors by name.

    `settings` are the values that no shape determines, by their names there, with a default or
    `Needed`. Those of the file replace the defaults, those of the user replace both; defaults other
    than None that were used are reported. `sizes` takes the checkpoint and these settings and
    returns the rest. `reference` builds from both a module that takes ids [1, seq], or two such
    tensors for an encoder-decoder, and returns logits [1, seq, vocab]. With `hides_padding` it
    finds padding by its id and takes whole batches; others take one sequence at a time.
    """

    name: str
    remark: str  # which program saves it, in which file
    rules: Table
    config_to_ours: Callable[[Any], Fields]
    our_classes: Library
    reference: Callable[[Any], Any]
    sizes: Callable[[Checkpoint, SimpleNamespace], Fields]
    settings: Fields
    marks: tuple[str, ...]  # names that only this layout has together
    ignored: dict[str, str] = field(default_factory=dict)
    config_to_theirs: Callable[[Any], Fields] | None = None  # None: import only
    hides_padding: bool = False
    # None: one file, or a folder in their layout that we wrote
    opener: Callable[[FilePath], Any] | None = None
    in_folder: Callable[[Path], bool] | None = None  # whether the program has written a folder
    is_described: bool = False  # the files hold all settings, but for earlier versions
    released: str = ""  # models that people know by name
    ties: dict[str, str] = field(default_factory=dict)  # a tensor → the setting that ties it
    zero_if_absent: ClassVar[tuple[str, ...]] = ()
    sinusoids: ClassVar[tuple[str, ...]] = ()
    dropped: ClassVar[dict[str, str]] = {}

    @property
    def theirs(self) -> "PlainFormat":
        return self

    def table(self, theirs: Config) -> tuple[Rule, ...]:
        return self.rules(theirs) if callable(self.rules) else self.rules

    def first_marks(self) -> set[str]:
        return {mark.replace("{i}", "0") for mark in self.marks}

    def checkpoint(self, path: FilePath) -> Checkpoint:
        if self.opener:
            return self.opener(path)
        if Path(path).is_file():
            return open_file(path)
        checkpoint = open_checkpoint(path)
        checkpoint.description = read_json(Path(path) / "config.json")
        return checkpoint

    def load_config(self, path: FilePath, settings: Fields | None = None) -> SimpleNamespace:
        checkpoint = self.checkpoint(path)
        given = {
            name: self.checked(name, value, path)
            for name, value in {**checkpoint.description, **(settings or {})}.items()
            if name in self.settings or name in (settings or {})
        }
        missing = [
            f"{name}={value.example}"
            for name, value in self.settings.items()
            if isinstance(value, Needed) and name not in given
        ]
        if missing:
            raise ConversionError(
                f"{path} does not hold {missing[0].split('=')[0]}: give it with --set, for example "
                + " ".join(f"--set {example}" for example in missing)
            )
        assumed = {n: v for n, v in self.settings.items() if v is not None and n not in given}
        config = SimpleNamespace(**{**self.settings, **given}, assumed=assumed)
        try:
            config.__dict__.update(self.sizes(checkpoint, config))
        except ConversionError:
            raise
        except WRONG_VALUES as error:
            raise ConversionError(f"{path}: {first_cause(error)}") from error
        config.dtype = self.dtype_of(checkpoint)
        return config

    def dtype_of(self, checkpoint: Checkpoint) -> torch.dtype | None:
        """Return the dtype of the first weight; ignored tensors may have any."""
        names = [n for n in checkpoint.names() if not is_ignored(self.ignored, n)]
        return checkpoint.read(names[0]).dtype if names else None

    def checked(self, name: str, value: object, path: FilePath) -> object:
        """Return the value if it has the type of the default or the example."""
        if name not in self.settings:
            raise ConversionError(
                f"{name} cannot be set for {self.name}: choose among {', '.join(self.settings)}"
            )
        model = self.settings[name]
        model = model.example if isinstance(model, Needed) else model
        kinds = (int, float) if isinstance(model, float) else (type(model),)
        if model is None:
            return value
        if type(value) not in kinds or (type(value) is int and value < 0):
            raise ConversionError(f"{name} is {value!r} for {path}: choose a value like {model!r}")
        return value

    def make_config(self, fields: Fields, dtype: torch.dtype | None) -> SimpleNamespace:
        return SimpleNamespace(**{**self.settings, **fields, "dtype": dtype, "assumed": {}})

    def build(self, config: SimpleNamespace) -> nn.Module:
        try:
            with torch.device("meta"):
                model = self.reference(config)
        except (*WRONG_VALUES, RuntimeError, AssertionError) as error:
            raise ConversionError(f"{self.name}: {first_cause(error)}") from error
        model.config = config
        return model

    def save_description(self, model: nn.Module, folder: Path) -> None:
        """Write what `load_config` needs to read the folder again."""
        settings = {name: getattr(model.config, name) for name in self.settings}
        text = json.dumps({"model_type": self.name, **settings}, indent=2)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")

    def load(self, path: FilePath, settings: Fields | None = None) -> LoadedModel:
        config = self.load_config(path, settings)
        model = self.build(config)
        self.fill(model, self.checkpoint(path), path)
        return self.loaded_model(model, self.ours_of(config))

    def ours_of(self, theirs: SimpleNamespace) -> PreTrainedConfig:
        return self.our_classes.make_config(self.config_to_ours(theirs), theirs.dtype)

    def fill(self, model: nn.Module, checkpoint: Checkpoint, path: FilePath) -> None:
        """Load the weights strictly, in float32; a meta module takes the tensors themselves."""
        state = model.state_dict(keep_vars=True)
        found = {
            name: checkpoint.read(name).float()
            for name in checkpoint.names()
            if name in state or not is_ignored(self.ignored, name)
        }
        for name, first in shared_names(state).items():  # safetensors holds one of the two names
            one = found.get(first, found.get(name))
            if one is not None:
                found.setdefault(first, one)
                found.setdefault(name, one)
        try:
            is_meta = any(tensor.is_meta for tensor in state.values())
            model.load_state_dict(found, strict=True, assign=is_meta)
        except RuntimeError as error:
            raise ConversionError(f"{path}: {first_cause(error)}") from error

    def loaded_model(self, model: nn.Module, ours: PreTrainedConfig) -> LoadedModel:
        is_seq2seq = ours.is_encoder_decoder
        return LoadedModel(
            model.eval(),
            (is_seq2seq and ours.source_vocab_size) or ours.vocab_size,
            ours.vocab_size if is_seq2seq else None,
            ours.max_position_embeddings,
            ours.pad_token_id,
            ask_padded if self.hides_padding else ask_one_by_one,
            list(model.parameters()),
            start=getattr(ours, "decoder_start_token_id", None),
        )


def ask_padded(model: nn.Module, batch: Batch) -> torch.Tensor:
    logits = model(batch["input_ids"], batch["decoder_input_ids"])
    return logits[batch["decoder_attention_mask"].bool()]


def ask_one_by_one(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return logits of a model without padding, one sequence at a time."""
    pairs = [("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")]
    columns = [
        [ids[mask.bool()][None] for ids, mask in zip(batch[name], batch[mask_name], strict=True)]
        for name, mask_name in pairs
        if name in batch
    ]
    return torch.cat([model(*inputs)[0] for inputs in zip(*columns, strict=True)])


def count(checkpoint: Checkpoint, pattern: str) -> int:
    """Return how many layers have a tensor of this name."""
    return sum(bool(matches(pattern, name)) for name in checkpoint.names())


def head_size(width: int, heads: int, name: str) -> int:
    """Return the size of one of `heads` heads, the value of the setting `name`."""
    if heads < 1 or width % heads:
        raise ConversionError(
            f"{name} is {heads}, which does not divide the width {width}: set another number"
        )
    return width // heads


def is_same(checkpoint: Checkpoint, first: str, second: str) -> bool:
    """Return whether two tables have equal values, as tied ones do after they were saved."""
    if checkpoint.shape(first) != checkpoint.shape(second):
        return False
    return torch.equal(checkpoint.read(first), checkpoint.read(second))


def parse_settings(words: Iterable[str] | None) -> Fields:
    """Parse settings: ["n_head=12", "bias=false"] → {"n_head": 12, "bias": False}."""
    settings = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise ConversionError(f"--set {word} has no value: write NAME=VALUE, as in n_head=12")
        settings[name] = parse(value)
    return settings


def parse(value: str) -> object:
    constants = {"true": True, "false": False, "none": None, "null": None}
    if value.lower() in constants:
        return constants[value.lower()]
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError):
        return value
