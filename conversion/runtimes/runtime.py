"""The interface of a runtime: what it refuses, what it writes, and how its files are run.

The packages of a runtime are imported inside functions: listing runtimes and refusing a model need
none of them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..engine.aliases import Batch
from ..engine.errors import ConversionError
from ..engine.format import MIXTURE
from ..engine.models import Library, LoadedModel

Sequences = list[list[int]]  # of token ids


@dataclass(frozen=True)
class Source:
    """A folder of ours, its configuration and classes, and the dtype to store."""

    folder: Path
    library: Library
    config: PreTrainedConfig
    dtype: str
    tokenizer: PreTrainedTokenizerBase | None = None

    @property
    def generates(self) -> bool:
        """Return whether the model has a language modelling head."""
        return self.library.model_class.can_generate()

    def load_model(self) -> LoadedModel:
        """Load the model in float32, anew at each call."""
        return self.library.load(self.folder)

    def model(self) -> PreTrainedModel:
        """Load the model as one graph can hold it: which experts run is not known beforehand."""
        model: Any = self.load_model().model
        if self.has_experts:
            model.set_experts_implementation("batched_mm")
        return model

    @property
    def has_experts(self) -> bool:
        return self.library.config_name == MIXTURE.config_name

    def refuse_experts(self, title: str) -> None:
        """Refuse a mixture for a runtime that would have to be told of its experts."""
        if self.has_experts:
            raise ConversionError(
                f"{self.folder} is a mixture of experts, which {title} does not get from "
                "hf_tformer: export it to onnx or openvino, or to the format of transformers that "
                f"{title} reads"
            )


def unpadded(batch: Batch, prefix: str = "") -> Sequences:
    """Return the sequences of a batch without padding; with "decoder_", those of the decoder."""
    ids, mask = batch[f"{prefix}input_ids"], batch[f"{prefix}attention_mask"].bool()
    return [sequence[is_real].tolist() for sequence, is_real in zip(ids, mask, strict=True)]


class Running(ABC):
    """The files of an export, opened in their runtime.

    With `generates_batches` it continues prompts of one length at once, not one after the other.
    """

    generates_batches = False

    @abstractmethod
    def logits(self, batch: Batch) -> torch.Tensor | None:
        """Return the logits at the real tokens of a batch, [tokens, vocab].

        Without a head these are hidden states, for classes of sequences [sequences, classes]. None
        if the runtime does not return them.
        """

    def generate(self, prompts: Sequences, new_tokens: int, num_beams: int) -> Sequences | None:
        """Return the continuation of each prompt, or the output for each source, with end tokens.

        None if the runtime cannot search with so many beams.
        """
        return None


class Runtime(ABC):
    """A runtime that can serve our models.

    `tolerance` is the allowed difference of logits from ours for each dtype that it stores,
    relative to the largest logit. If it is more than rounding explains, greedy outputs may differ.
    """

    name: str  # after --to
    title: str
    packages: tuple[str, ...]  # needed to write and to prove
    extra: str  # of our package that installs them
    library_name: str  # on the Hub
    language: str = "python"  # of `program`
    marks: tuple[str, ...] = ()  # a folder with one of these files is opened by `open_exported`
    tolerance: dict[str, float]
    beams: tuple[int, ...] = (1, 4)  # numbers of beams that it supports

    def load_model(self, source: Source) -> LoadedModel:
        """Load our model, restricted to the inputs that this runtime supports."""
        return source.load_model()

    def tolerance_for(self, source: Source) -> float:
        """Return the tolerance for a model, which depends on the dtype alone in most runtimes."""
        return self.tolerance[source.dtype]

    def advice(self, dtype: str) -> str:
        """Return what to do where the outputs differ by more than rounding explains."""
        return "please report this configuration"

    def imitate(self, model: PreTrainedModel) -> list[RemovableHandle]:
        """Add hooks by which our model rounds where this runtime does and torch does not."""
        return []

    @abstractmethod
    def refuse(self, source: Source) -> None:
        """Refuse what the runtime cannot serve, before anything is written."""

    @abstractmethod
    def write(self, source: Source, folder: Path) -> None:
        """Write what the runtime opens; tokenizer and generation settings are written beside it."""

    @abstractmethod
    def open(self, source: Source, folder: Path) -> Running:
        """Open what was written."""

    def pack(self, source: Source, folder: Path) -> bool:
        """Pack what was proven in fewer bits; return whether there was anything to pack."""
        return False

    @abstractmethod
    def program(self, source: Source, name: str) -> str:
        """Return a program that opens the folder `name`, for the card."""

    def checked_dtype(self, dtype: str | torch.dtype | None) -> str:
        """Return the dtype, by default the first one, or refuse one that files cannot hold."""
        if dtype is None:
            return next(iter(self.tolerance))
        if not isinstance(dtype, str) or dtype not in self.tolerance:
            raise ConversionError(
                f"dtype is {dtype!r}, which {self.name} files do not hold: choose one of "
                f"{', '.join(self.tolerance)}"
            )
        return dtype

    def refuse_missing_packages(self) -> None:
        missing = [name for name in self.packages if find_spec(name) is None]
        if missing:
            raise ConversionError(
                f"{' and '.join(missing)} must be installed to export to {self.title}: "
                f"pip install 'hf-tformer[{self.extra}]'"
            )
