"""Layouts of plain PyTorch programs, which no installed library reads.

A layout is declared as the others are, by a table and two functions for the configuration. Three
things are added: how the shapes of the tensors tell the sizes, what has to be said because no shape
tells it, and a short module of our own that reads the weights as the original does. That module
gives the names and shapes to convert from, and the logits that prove the conversion.
"""

import json
from ast import literal_eval
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import torch
from torch import nn
from transformers import PreTrainedConfig

from .aliases import Config, Fields
from .checkpoints import Checkpoint, open_checkpoint, open_file, read_json
from .errors import ConversionError
from .models import WRONG_VALUES, Library, Reader, first_cause
from .rules import Rule, is_ignored, matches, shared_names

# What no plain file says about its vocabulary; in our words, as most programs have none of their
# own.
TOKEN_IDS = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


@dataclass(frozen=True)
class Needed:
    """A setting without a default, and a value to show in the message that asks for it."""

    example: object


@dataclass(frozen=True)
class PlainFormat:
    """A layout of tensors by name.

    `settings` are what the shapes do not tell, by their names there: a default, or `Needed`. They
    are looked for in the file first; what the user says wins. A default other than None that was
    taken is reported. `sizes` takes the checkpoint and these settings and gives the rest.
    `reference` builds from both a module that is called with ids [1, seq], or with two such tensors
    by an encoder-decoder, and gives logits [1, seq, vocab]. It finds padding by its id where
    `hides_padding`, and then takes whole batches; the others are asked row by row.
    """

    name: str
    remark: str  # which program saves it, in which file
    rules: tuple[Rule, ...] | Callable  # or what gives them for a configuration of theirs
    config_to_ours: Callable
    our_classes: Library
    reference: Callable
    sizes: Callable
    settings: dict[str, object]
    marks: tuple[str, ...]  # names that this layout alone has together
    ignored: dict[str, str] = field(default_factory=dict)
    config_to_theirs: Callable | None = None  # None: import only
    hides_padding: bool = False
    opener: Callable | None = None  # None: one file, or a folder of theirs that we wrote
    released: str = ""  # what people look for by name
    zero_if_absent = ()
    sinusoids = ()
    dropped: ClassVar[dict[str, str]] = {}
    names_in_files: ClassVar[dict[str, str]] = {}

    @property
    def theirs(self) -> "PlainFormat":
        return self

    def table(self, theirs: Config) -> tuple[Rule, ...]:
        return self.rules(theirs) if callable(self.rules) else self.rules

    def first_marks(self) -> set[str]:
        return {mark.replace("{i}", "0") for mark in self.marks}

    def checkpoint(self, path: str | Path) -> Checkpoint:
        if self.opener:
            return self.opener(path)
        if Path(path).is_file():
            return open_file(path)
        checkpoint = open_checkpoint(path)
        checkpoint.description = read_json(Path(path) / "config.json")
        return checkpoint

    def load_config(self, path: str | Path, settings: Fields | None = None) -> SimpleNamespace:
        checkpoint = self.checkpoint(path)
        said = {
            name: self.checked(name, value, path)
            for name, value in {**checkpoint.description, **(settings or {})}.items()
            if name in self.settings or name in (settings or {})
        }
        missing = [
            f"{name}={value.example}"
            for name, value in self.settings.items()
            if isinstance(value, Needed) and name not in said
        ]
        if missing:
            raise ConversionError(
                f"{path} does not say {missing[0].split('=')[0]}: give it with --set, for example "
                + " ".join(f"--set {example}" for example in missing)
            )
        assumed = {n: v for n, v in self.settings.items() if v is not None and n not in said}
        config = SimpleNamespace(**{**self.settings, **said}, assumed=assumed)
        try:
            config.__dict__.update(self.sizes(checkpoint, config))
        except ConversionError:
            raise
        except WRONG_VALUES as error:
            raise ConversionError(f"{path}: {first_cause(error)}") from error
        config.dtype = self.dtype_of(checkpoint)
        return config

    def dtype_of(self, checkpoint: Checkpoint) -> torch.dtype | None:
        """That of the first weight; what is ignored may be of any."""
        names = [n for n in checkpoint.names() if not is_ignored(self.ignored, n)]
        return checkpoint.read(names[0]).dtype if names else None

    def checked(self, name: str, value: object, path: str | Path) -> object:
        """The value, if it is of the kind that the default or the example is of."""
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
        """What `load_config` needs to read the folder again."""
        said = {name: getattr(model.config, name) for name in self.settings}
        text = json.dumps({"model_type": self.name, **said}, indent=2)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")

    def load(self, path: str | Path, settings: Fields | None = None) -> Reader:
        config = self.load_config(path, settings)
        model = self.build(config)
        self.fill(model, self.checkpoint(path), path)
        return self.reader(model, self.ours_of(config))

    def ours_of(self, theirs: SimpleNamespace) -> PreTrainedConfig:
        return self.our_classes.make_config(self.config_to_ours(theirs), theirs.dtype)

    def fill(self, model: nn.Module, checkpoint: Checkpoint, path: str | Path) -> None:
        """Loads the weights strictly, in float32; a meta module takes the tensors themselves."""
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

    def reader(self, model: nn.Module, ours: PreTrainedConfig) -> Reader:
        is_seq2seq = ours.is_encoder_decoder
        return Reader(
            model.eval(),
            (is_seq2seq and ours.source_vocab_size) or ours.vocab_size,
            ours.vocab_size if is_seq2seq else None,
            ours.max_position_embeddings,
            ours.pad_token_id,
            ask_padded if self.hides_padding else ask_rows,
            list(model.parameters()),
        )


def ask_padded(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(batch["input_ids"], batch["decoder_input_ids"])
    return logits[batch["decoder_attention_mask"].bool()]


def ask_rows(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Each row by itself and without padding, which such a model knows nothing of."""
    pairs = [("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")]
    columns = [
        [ids[mask.bool()][None] for ids, mask in zip(batch[name], batch[mask_name], strict=True)]
        for name, mask_name in pairs
        if name in batch
    ]
    return torch.cat([model(*row)[0] for row in zip(*columns, strict=True)])


def count(checkpoint: Checkpoint, pattern: str) -> int:
    """How many layers have a tensor of this name."""
    return sum(bool(matches(pattern, name)) for name in checkpoint.names())


def head_size(width: int, heads: int, name: str) -> int:
    """How wide one of `heads` heads is, which is what the setting `name` says."""
    if heads < 1 or width % heads:
        raise ConversionError(
            f"{name} is {heads}, but {width} numbers do not divide into so many heads: set another"
        )
    return width // heads


def is_same(checkpoint: Checkpoint, first: str, second: str) -> bool:
    """Two tables with the same values are one, as they were before they were saved."""
    if checkpoint.shape(first) != checkpoint.shape(second):
        return False
    return torch.equal(checkpoint.read(first), checkpoint.read(second))


def parse_settings(words: Iterable[str] | None) -> Fields:
    """["n_head=12", "bias=false"] → {"n_head": 12, "bias": False}"""
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
