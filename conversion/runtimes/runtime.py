"""What a runtime is: what it refuses, what it writes, and how its files are asked.

To write needs the packages of a runtime; to know the runtimes and to refuse needs none of them, so
they are imported inside functions.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..engine.errors import ConversionError
from ..engine.models import Library, Reader

Batch = dict[str, torch.Tensor]
Texts = list[list[int]]


@dataclass(frozen=True)
class Source:
    """A folder of ours: what it says, who reads it, and how its numbers are to be stored."""

    folder: Path
    library: Library
    config: PreTrainedConfig
    dtype: str
    tokenizer: PreTrainedTokenizerBase | None = None

    @property
    def generates(self) -> bool:
        """Whether its head writes texts."""
        return self.library.model_class.can_generate()

    def reader(self) -> Reader:
        """The model in float32, read anew: nobody keeps it for another."""
        return self.library.load(self.folder)

    def model(self) -> PreTrainedModel:
        return self.reader().model


def real_rows(batch: Batch, prefix: str = "") -> Texts:
    """The texts of a batch without their padding; with "decoder_", those that are written."""
    ids, mask = batch[f"{prefix}input_ids"], batch[f"{prefix}attention_mask"].bool()
    return [row[is_real].tolist() for row, is_real in zip(ids, mask, strict=True)]


class Running(ABC):
    """The files of an export, opened in their runtime.

    `writes_batches` where it can continue rows of one length at once, not one after the other.
    """

    writes_batches = False

    @abstractmethod
    def logits(self, batch: Batch) -> torch.Tensor | None:
        """What the runtime says at the real tokens of a batch, [tokens, vocab]; of a model without
        a head, its hidden states; of classes, [texts, classes]. None where it does not tell."""

    def continue_texts(self, rows: Texts, new_tokens: int, num_beams: int) -> Texts | None:
        """What follows each row (for an encoder-decoder, what is written of it), the end token
        with it if one was written. None where the runtime cannot search with so many beams."""
        return None


class Runtime(ABC):
    """A runtime that can serve our models.

    `tolerance` is by the name of each dtype that it stores: how far logits may be from ours, as a
    part of the largest one. Where it is more than rounding explains, greedy texts may differ.
    """

    name: str  # after --to
    title: str
    packages: tuple[str, ...]  # that writing and proving import
    extra: str  # of our package, which installs them
    library_name: str  # on the Hub
    language: str = "python"  # of `program`
    marks: tuple[str, ...] = ()  # files, one of which a folder has that `open_exported` opens
    tolerance: dict[str, float]
    beams: tuple[int, ...] = (1, 4)  # that it searches with

    def reader(self, source: Source) -> Reader:
        """Our model, to be asked what this runtime can be asked."""
        return source.reader()

    def tolerance_for(self, source: Source) -> float:
        """That of its dtype, where the runtime computes all models alike."""
        return self.tolerance[source.dtype]

    def imitate(self, model: PreTrainedModel) -> list[RemovableHandle]:
        """Hooks by which our model rounds where this runtime does and torch does not."""
        return []

    @abstractmethod
    def refuse(self, source: Source) -> None:
        """Refuses what the runtime cannot serve, before anything is written."""

    @abstractmethod
    def write(self, source: Source, folder: Path) -> None:
        """Writes what the runtime opens; tokenizer and habits of generation come beside it."""

    @abstractmethod
    def open(self, source: Source, folder: Path) -> Running:
        """Opens what was written."""

    @abstractmethod
    def program(self, source: Source, name: str) -> str:
        """The lines in which its users open the folder `name`, for the card."""

    def refuse_dtype(self, dtype: str) -> None:
        if dtype not in self.tolerance:
            raise ConversionError(
                f"dtype is {dtype!r}, which {self.name} files do not hold: choose one of "
                f"{', '.join(self.tolerance)}"
            )

    def refuse_missing_packages(self) -> None:
        missing = [name for name in self.packages if find_spec(name) is None]
        if missing:
            raise ConversionError(
                f"{' and '.join(missing)} must be installed to export to {self.title}: "
                f"pip install 'hf-tformer[{self.extra}]'"
            )
