"""The request and the result of a conversion."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from transformers import PreTrainedTokenizerBase

from .aliases import Fields, FilePath
from .translation import AnyFormat, AnySide


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion.

    `difference` is the largest one between the logits of both models, None if they were not
    compared. `disagreements` has a sentence for each special id on which configuration, generation
    settings and tokenizer disagree, `assumed` the defaults of settings that were not given,
    `left_out` a sentence for each part of theirs that has no place in ours. `compared` is what was
    compared: logits, or the hidden states of a model without a head. `read_by` is a sentence on
    what the program for which the file was made computes from it.
    """

    folder: Path
    format: str
    tensors: int
    difference: float | None
    disagreements: tuple[str, ...] = ()
    assumed: Fields = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    compared: str = "logits"
    read_by: str = ""


@dataclass(frozen=True)
class Request:
    """The source, the destination and the options of a conversion."""

    src: FilePath
    dst: FilePath
    format: AnyFormat
    direction: Literal["import", "export"]
    dtype: torch.dtype | None = None
    verify: bool = True
    tokenizer: PreTrainedTokenizerBase | FilePath | None = None
    progress: bool = False
    settings: Fields | None = None

    @property
    def to_ours(self) -> bool:
        return self.direction == "import"

    @property
    def source_side(self) -> AnySide:
        return self.format.theirs if self.to_ours else self.format.our_classes

    @property
    def target_side(self) -> AnySide:
        return self.format.our_classes if self.to_ours else self.format.theirs
