"""A conversion: what is asked for, and what was done."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from .translation import AnyFormat, AnySide


@dataclass(frozen=True)
class Conversion:
    """What was done: where it lies, how many tensors, and how far the logits are apart.

    `difference` is None where nobody has compared them. `disagreements` holds a sentence for each
    special id that configuration, generation and tokenizer do not agree on, `assumed` the defaults
    for what nobody said, `left_out` a sentence for each part of theirs that has no place in ours.
    `compared` is what was compared: logits, or the hidden states of a model without a head.
    """

    folder: Path
    format: str
    tensors: int
    difference: float | None
    disagreements: tuple[str, ...] = ()
    assumed: dict[str, object] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    compared: str = "logits"


@dataclass(frozen=True)
class Request:
    """What is to be converted, from where to where, and how."""

    src: str | os.PathLike
    dst: str | os.PathLike
    form: AnyFormat
    direction: Literal["import", "export"]
    dtype: torch.dtype | None = None
    verify: bool = True
    tokenizer: str | os.PathLike | None = None
    progress: bool = False
    settings: dict[str, object] | None = None

    @property
    def to_ours(self) -> bool:
        return self.direction == "import"

    @property
    def source_side(self) -> AnySide:
        return self.form.theirs if self.to_ours else self.form.our_classes

    @property
    def target_side(self) -> AnySide:
        return self.form.our_classes if self.to_ours else self.form.theirs
