"""Another folder of transformers, or of ours, that is asked."""

import operator
import re
from functools import cached_property
from pathlib import Path

import torch

from ..engine.aliases import Batch
from ..engine.models import LoadedModel
from ..engine.nearness import ROUNDING
from ..engine.proof import real_logits
from ..engine.rules import saved_state
from ..runtimes.proof import generate
from ..runtimes.runtime import Running, Sequences
from .answer import Answer, compare_fields
from .model import Model
from .opened import OpenedFolder
from .weights import compare_weights

# Fields that say how a folder was made, or what a number of the others says.
OF_THE_FOLDER = (
    *("transformers_version", "_name_or_path", "architectures", "auto_map", "dtype"),
    *("torch_dtype", "use_cache", "_attn_implementation_internal"),
)
TRAINING = re.compile("dropout|initializer|label2id|id2label|problem_type|aux_loss")
HALVES = (torch.bfloat16, torch.float16)


class OpenedModel(OpenedFolder):
    title = "transformers"

    def __init__(self, model: Model, folder: Path) -> None:
        self.other = Model(folder)
        super().__init__(model, self.other.tokenizer, self.other.generation)
        self.is_same_class = self.other.library == model.library

    @cached_property
    def running(self) -> Running:
        return RunningModel(self.other.loaded)

    @cached_property
    def start(self) -> LoadedModel:
        """Return the model with weights that are rounded like the other's."""
        return self.model.rounded(self.dtype)

    @cached_property
    def dtype(self) -> torch.dtype | None:
        """Return the half precision that holds the other's weights, whatever it is said to be."""
        weights = [x for x in self.other.state.values() if x.is_floating_point()]
        fitting = (d for d in HALVES if all(torch.equal(x.to(d).to(x.dtype), x) for x in weights))
        return next(fitting, None)

    def more_answers(self) -> list[Answer]:
        """Compare fields and tensors, which have the same names in the same class."""
        if not self.is_same_class:
            return []
        bound = ROUNDING[self.dtype or torch.float32]
        ours, theirs = (saved_state(one.loaded.model) for one in (self.model, self.other))
        weights = compare_weights(self.model.config, ours, theirs, lambda _: bound)
        return [self.compare_settings(), weights]

    def compare_settings(self) -> Answer:
        ours, theirs = self.model.config.to_dict(), self.other.config.to_dict()
        known = type(self.model.config)().to_dict().keys() - {*OF_THE_FOLDER}
        names = [name for name in known if not TRAINING.search(name)]
        here, there = ({name: said.get(name) for name in names} for said in (ours, theirs))
        return compare_fields(here, there, operator.eq, "the folder was given other settings")


class RunningModel(Running):
    generates_batches = True

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded

    def logits(self, batch: Batch) -> torch.Tensor:
        return real_logits(self.loaded, batch)

    def generate(self, prompts: Sequences, new_tokens: int, num_beams: int) -> Sequences:
        return generate(self.loaded.model, prompts, new_tokens, num_beams).sequences
