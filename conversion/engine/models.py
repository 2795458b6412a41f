"""The side of a library: configurations and models of the classes that a format names.

A side, this one or a plain layout (plain.py), has six tasks: read a configuration, make one from
fields, build a model without weights, find the weights, describe a model in a folder, and load a
model that computes logits.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import custom_object_save
from transformers.initialization import no_init_weights
from transformers.utils import ModelOutput, logging

from .aliases import Batch, Fields, FilePath
from .checkpoints import Checkpoint, open_checkpoint
from .errors import ConversionError, MissingClassError
from .rules import is_ignored
from .transforms import are_sinusoids, sinusoids

ATTENTION = "eager"  # which all models support
LONGEST = 512  # tokens, for models without a limit
WRONG_VALUES = (ValueError, TypeError, KeyError, ArithmeticError, StrictDataclassError)


@dataclass
class LoadedModel:
    """A loaded model, the inputs that it takes, and how it is called."""

    model: nn.Module
    input_ids: int  # the number of ids
    output_ids: int | None  # of an encoder-decoder
    longest: int  # sequence
    pad: int | None
    # model, batch → the logits at real tokens, [tokens, vocab], or the output of another head
    ask: Callable[[nn.Module, Batch], torch.Tensor]
    weights: list[torch.Tensor]  # that another dtype rounds
    is_encoder: bool = False
    types: int = 0  # kinds of segments
    start: int | None = None  # the first token of each output
    rows: int | None = None  # the most sequences at once
    # tables of sinusoids as the file holds them, rounded; the model holds them as they were meant
    rounded_tables: dict[nn.Parameter, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    """A side with classes in transformers or in our own package."""

    library: ModuleType
    config_name: str
    model_name: str
    is_encoder: bool = False
    may_lack: tuple[str, ...] = ()  # patterns of tensors that no compared output needs
    first_position: Callable[[PreTrainedConfig], int] = lambda config: 0
    sinusoids: tuple[str, ...] = ()  # tables that a file may lack or hold rounded

    @property
    def config_class(self) -> type[PreTrainedConfig]:
        return self.class_of(self.config_name)

    @property
    def model_class(self) -> type[PreTrainedModel]:
        return self.class_of(self.model_name)

    def class_of(self, name: str) -> Any:
        """Return a class, which older versions of transformers may not have."""
        try:
            return getattr(self.library, name)
        except AttributeError as error:
            version = f"{self.library.__name__} {self.library.__version__}"
            raise MissingClassError(f"{version} has no {name}: install a newer version") from error

    @property
    def answers(self) -> str:
        """Name the output of a model of this class."""
        # MarianMTModel and GPT2LMHeadModel have heads.
        is_body = self.model_name.endswith("Model") and not self.model_class.can_generate()
        return "hidden states" if is_body else "logits"

    @property
    def classifies_decoded(self) -> bool:
        return not self.is_encoder and self.model_name.endswith("ForSequenceClassification")

    def load_config(self, folder: FilePath, settings: Fields | None = None) -> PreTrainedConfig:
        if settings:
            raise ConversionError(
                f"{', '.join(settings)} cannot be set: config.json in {folder} holds all settings"
            )
        try:
            # A configuration may name attention code on the Hub; a given one is not looked up.
            return self.config_class.from_pretrained(folder, attn_implementation=ATTENTION)
        except (*WRONG_VALUES, AttributeError) as error:  # a name that the class computes
            raise ConversionError(f"{folder}/config.json: {first_cause(error)}") from error

    def make_config(self, fields: Fields, dtype: torch.dtype | None) -> PreTrainedConfig:
        try:
            return self.config_class(**fields, dtype=dtype)
        except WRONG_VALUES as error:
            raise ConversionError(f"{self.config_name} refuses: {first_cause(error)}") from error

    def build(self, config: PreTrainedConfig) -> PreTrainedModel:
        try:
            with no_init_weights(), torch.device("meta"):
                return self.model_class(config)
        except WRONG_VALUES as error:
            raise ConversionError(f"{type(config).__name__}: {first_cause(error)}") from error

    def checkpoint(self, folder: FilePath) -> Checkpoint:
        return open_checkpoint(folder)

    def save_description(self, model: PreTrainedModel, folder: Path) -> None:
        """Write everything that save_pretrained writes except the weights."""
        model.config.architectures = [type(model).__name__]
        if model._auto_class is not None:  # our code travels with the checkpoint
            custom_object_save(model, folder, config=model.config)
        model.config.save_pretrained(folder)

    def open(self, folder: FilePath | None, **source: object) -> tuple[PreTrainedModel, Fields]:
        """Return the model of a folder in float32, and the report of the names that were loaded."""
        # Chunks change no output, and fail where they do not divide the length of a sequence.
        whole = {"chunk_size_feed_forward": 0} if self.is_encoder and folder is not None else {}
        return self.model_class.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation=ATTENTION,
            experts_implementation="eager",  # which takes experts of every size
            output_loading_info=True,
            **whole,
            **source,
        )

    def load(self, folder: FilePath, settings: Fields | None = None) -> LoadedModel:
        """Load the model of a folder in float32, every weight of it from there."""
        stored = self.load_config(folder, settings).dtype or torch.float32
        with unreported():
            model, report = self.open(folder)
        may_lack = (*self.may_lack, *self.sinusoids)
        missing = [name for name in report["missing_keys"] if not is_ignored(may_lack, name)]
        lacking = sorted(map(str, (*missing, *report["mismatched_keys"])))
        if lacking:
            raise ConversionError(f"{folder} lacks or misshapes {lacking[:5]}: fetch it again")
        rounded_tables = restore_sinusoids(map(model.get_parameter, self.sinusoids), stored)
        config = model.config
        return LoadedModel(
            model.eval(),
            model.get_input_embeddings().num_embeddings,
            model.get_output_embeddings().out_features if config.is_encoder_decoder else None,
            longest_sequence(config) - self.first_position(config),
            getattr(config, "pad_token_id", None),  # CodeGen has no such field
            ask if self.is_encoder else partial(ask, use_cache=False),
            [
                tensor
                for name, tensor in model.state_dict(keep_vars=True).items()
                # Tables of constants are computed, not converted. They are frozen parameters until
                # one is read from a file.
                if name not in self.sinusoids
                if tensor.requires_grad or not isinstance(tensor, nn.Parameter)
            ],
            self.is_encoder,
            getattr(config, "type_vocab_size", 0),
            getattr(config, "decoder_start_token_id", None),
            # To classify several sequences it has to find their last tokens by the padding.
            1 if self.classifies_decoded and config.pad_token_id is None else None,
            rounded_tables,
        )


@torch.no_grad()
def restore_sinusoids(
    tables: Iterable[nn.Parameter], stored: torch.dtype
) -> dict[nn.Parameter, torch.Tensor]:
    """Undo the rounding of sinusoids in a file, and return the tables that it changed, rounded.

    A table of anything else stays as it is, and changes the logits.
    """
    rounded = {}
    for table in tables:
        exact = sinusoids(*table.shape)
        if are_sinusoids(table, stored) and not torch.equal(table, exact):
            rounded[table] = table.clone()
            table.copy_(exact)
    return rounded


def longest_sequence(config: PreTrainedConfig) -> int:
    """Return the largest number of positions, for which MPT has a name of its own."""
    named = (getattr(config, name, None) for name in ("max_position_embeddings", "max_seq_len"))
    return next((length for length in named if length is not None), LONGEST)


@contextmanager
def unreported() -> Iterator[None]:
    """Silence transformers' table of missing and unexpected tensors, which are checked here."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def ask(model: Callable[..., ModelOutput], batch: Batch, **options: bool) -> torch.Tensor:
    """Return the output of the head per sequence or real token; without a head, hidden states."""
    outputs = model(**batch, **options)
    if "start_logits" in outputs:
        answer = torch.stack((outputs.start_logits, outputs.end_logits), dim=-1)
    else:
        answer = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    mask = batch.get("decoder_attention_mask", batch["attention_mask"])
    return answer[mask.bool()] if answer.ndim == 3 else answer


def first_cause(error: BaseException) -> str:
    """Return the message of the first error, without the frames that validators put around it."""
    while isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())
