"""The side of a library: configurations and models by the class names that a format gives.

A side, this one or a plain layout (plain.py), can do six things: read a configuration and make one
from fields, build a model without weights, find the weights, describe a model in a folder, and
load a model to be asked for its logits.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import custom_object_save
from transformers.initialization import no_init_weights
from transformers.utils import logging

from .aliases import Fields
from .checkpoints import Checkpoint, open_checkpoint
from .errors import ConversionError
from .rules import is_ignored
from .transforms import are_sinusoids, sinusoids

ATTENTION = "eager"  # which all models know
LONGEST = 512  # tokens, for models that name no limit
WRONG_VALUES = (ValueError, TypeError, KeyError, ArithmeticError, StrictDataclassError)


@dataclass
class Reader:
    """A loaded model, what it can be asked, and how."""

    model: nn.Module
    input_ids: int  # how many there are
    output_ids: int | None  # of an encoder-decoder
    longest: int
    pad: int | None
    ask: Callable  # model, batch → the logits at real tokens, [tokens, vocab], or what it answers
    weights: list[torch.Tensor]  # what rounding to another dtype rounds
    is_encoder: bool = False
    types: int = 0  # kinds of segments


@dataclass(frozen=True)
class Library:
    """A side that transformers, or our own package, has classes for."""

    library: ModuleType
    config_name: str
    model_name: str
    is_encoder: bool = False
    may_lack: tuple[str, ...] = ()  # patterns of tensors that nothing which is asked reads
    first_position: Callable = lambda config: 0
    sinusoids: tuple[str, ...] = ()  # tables that a file may lack, or hold rounded

    @property
    def config_class(self) -> type[PreTrainedConfig]:
        return getattr(self.library, self.config_name)

    @property
    def model_class(self) -> type[PreTrainedModel]:
        return getattr(self.library, self.model_name)

    @property
    def answers(self) -> str:
        """What a model of this class answers with."""
        has_head = not (self.is_encoder and self.model_name.endswith("Model"))  # MarianMTModel has
        return "logits" if has_head else "hidden states"

    def load_config(self, folder: str | Path, settings: Fields | None = None) -> PreTrainedConfig:
        if settings:
            raise ConversionError(
                f"{', '.join(settings)} cannot be set: config.json in {folder} says all of it"
            )
        try:
            # A configuration may name attention code on the Hub; what is stated is not looked up.
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

    def checkpoint(self, folder: str | Path) -> Checkpoint:
        return open_checkpoint(folder)

    def save_description(self, model: PreTrainedModel, folder: Path) -> None:
        """Everything that save_pretrained writes except the weights."""
        model.config.architectures = [type(model).__name__]
        if model._auto_class is not None:  # our code travels with the checkpoint
            custom_object_save(model, folder, config=model.config)
        model.config.save_pretrained(folder)

    def load(self, folder: str | Path, settings: Fields | None = None) -> Reader:
        """The model of a folder in float32, every weight of it from there."""
        stored = self.load_config(folder, settings).dtype or torch.float32
        # Chunks change no answer, and stop a model where they do not divide the length of a text.
        whole = {"chunk_size_feed_forward": 0} if self.is_encoder else {}
        with unreported():
            model, report = self.model_class.from_pretrained(
                folder,
                dtype=torch.float32,
                attn_implementation=ATTENTION,
                output_loading_info=True,
                **whole,
            )
        may_lack = (*self.may_lack, *self.sinusoids)
        missing = [name for name in report["missing_keys"] if not is_ignored(may_lack, name)]
        lacking = sorted(map(str, (*missing, *report["mismatched_keys"])))
        if lacking:
            raise ConversionError(f"{folder} lacks or misshapes {lacking[:5]}: fetch it again")
        with torch.no_grad():
            for table in map(model.get_parameter, self.sinusoids):
                if are_sinusoids(table, stored):  # without the rounding; others show in the logits
                    table.copy_(sinusoids(*table.shape))
        config = model.config
        return Reader(
            model.eval(),
            model.get_input_embeddings().num_embeddings,
            model.get_output_embeddings().out_features if config.is_encoder_decoder else None,
            longest_text(config) - self.first_position(config),
            config.pad_token_id,
            ask_encoder if self.is_encoder else ask,
            [
                tensor
                for name, tensor in model.state_dict(keep_vars=True).items()
                # Tables of constants are computed, not converted. They are frozen parameters, which
                # one that was read from a file no longer is.
                if name not in self.sinusoids
                if tensor.requires_grad or not isinstance(tensor, nn.Parameter)
            ],
            self.is_encoder,
            getattr(config, "type_vocab_size", 0),
        )


def longest_text(config: PreTrainedConfig) -> int:
    """MPT has its own name for it and cannot read more; models without any limit have no name."""
    named = (getattr(config, name, None) for name in ("max_position_embeddings", "max_seq_len"))
    return next((length for length in named if length is not None), LONGEST)


@contextmanager
def unreported() -> Iterator[None]:
    """Without transformers' table of what a file has and lacks: that is judged, and told, here."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def ask(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The logits at real tokens; what stands at padding is nobody's answer."""
    logits = model(**batch, use_cache=False).logits
    return logits[batch.get("decoder_attention_mask", batch["attention_mask"]).bool()]


def ask_encoder(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """What its head says of each text or of each real token; without a head, its hidden states."""
    outputs = model(**batch)
    if "start_logits" in outputs:
        said = torch.stack((outputs.start_logits, outputs.end_logits), dim=-1)
    else:
        said = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    return said[batch["attention_mask"].bool()] if said.ndim == 3 else said


def first_cause(error: BaseException) -> str:
    """The words of whoever complained first, without the frames that validators put around."""
    while isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())
