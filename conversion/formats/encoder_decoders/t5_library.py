"""The side of transformers' T5, mT5 and UMT5, whose tensors tell whether the head is tied.

Their models tie it always, unless the file holds another one. Their configurations say so always,
too; here tie_word_embeddings is what was found.
"""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers import PreTrainedModel

from ...engine.aliases import Config, Fields
from ...engine.checkpoints import Checkpoint, open_checkpoint
from ...engine.format import Format
from ...engine.heads import architecture_of
from ...engine.models import Library

HEAD = "lm_head.weight"
TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
OLD_NAMES = ("T5WithLMHeadModel",)  # t5-3b and t5-11b


class T5Library(Library):
    """Their classes, and configurations that tell the truth about the head."""

    def load_config(self, folder: str | Path, settings: Fields | None = None) -> Config:
        architecture_of(folder, (self.model_name, *OLD_NAMES))
        config = super().load_config(folder, settings)
        config.tie_word_embeddings = is_head_tied(open_checkpoint(folder))
        return config

    def make_config(self, fields: Fields, dtype: torch.dtype | None) -> Config:
        config = super().make_config(fields, dtype)
        config.tie_word_embeddings = fields["tie_word_embeddings"]
        return config

    def build(self, config: Config) -> PreTrainedModel:
        tied = deepcopy(config)
        tied.tie_word_embeddings = True  # their field is about the tables of the stacks, too
        model = super().build(tied)
        model.config = config
        if not config.tie_word_embeddings:  # as after loading a file with another head
            del model.all_tied_weights_keys[HEAD]
        return model


def is_head_tied(checkpoint: Checkpoint) -> bool:
    """Whether a file lacks a head of its own, or has one that is equal to the table."""
    tables = [name for name in TABLES if name in checkpoint.places]
    if not tables or HEAD not in checkpoint.places:
        return True
    return torch.equal(checkpoint.read(tables[0]), checkpoint.read(HEAD))


@dataclass(frozen=True)
class T5Format(Format):
    """A format whose other side is such a library."""

    @property
    def theirs(self) -> T5Library:
        return T5Library(transformers, *self.classes)
