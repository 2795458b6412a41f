"""How code of others corresponds to a class of transformers or of ours: fields and tensors renamed.

A field or tensor that a renaming does not mention keeps its name. Sizes that code computes in its
own way are those of the tensors. Whatever a renaming gets wrong shows in the answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..engine.aliases import Fields
from ..engine.checkpoints import Checkpoint
from ..engine.errors import ConversionError
from ..engine.rules import Rule
from ..engine.transforms import Tensors

# Fields of config.json that say nothing of what the model computes.
ASIDE = (
    *("_name_or_path", "_from_model_config", "architectures", "auto_map", "dtype", "model_type"),
    *("torch_dtype", "transformers_version", "tie_word_embeddings", "tokenizer_class"),
)


# A class of transformers has ids of its own where these are not given.
IDS = ("bos_token_id", "eos_token_id", "pad_token_id")

OLD_ROTATION = ("rope_scaling", "rope_theta", "partial_rotary_factor", "rope_parameters")


@dataclass(frozen=True)
class Renaming:
    """From one kind of code to the model type `target`, named target's ← theirs.

    `sizes` are fields of the target that are a dimension of a tensor of theirs. `required` are the
    values of theirs without which the target computes something else. `words` stand in the code,
    where one model_type is the name of several architectures, and `other_words` do not. `limits`
    are sentences on fields of theirs for which the target has no place, where they are set.
    """

    target: str
    model_types: tuple[str, ...]
    fields: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    fixed: Fields = field(default_factory=dict)
    sizes: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    required: Fields = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    computed: Callable[[Fields], Fields] = lambda fields: {}
    words: tuple[str, ...] = ()
    other_words: tuple[str, ...] = ()
    numbered: Callable[[Fields], tuple[Rule, ...]] = lambda fields: ()

    def is_for(self, fields: Fields, code: str) -> bool:
        named = fields.get("model_type") in self.model_types
        return (
            named
            and all(word in code for word in self.words)
            and not any(word in code for word in self.other_words)
        )

    def of_target(self, theirs: Fields, checkpoint: Checkpoint, known: set[str]) -> Fields:
        """Return the target's fields; `known` are the names that its configuration has."""
        for name, value in self.required.items():
            if theirs.get(name, value) != value:
                raise ConversionError(
                    f"{name} is {theirs[name]!r}, which {self.target} cannot express: only "
                    f"{value!r} has a place there"
                )
        same = {name: value for name, value in theirs.items() if name in known - {*ASIDE}}
        renamed = {ours: theirs[name] for ours, name in self.fields.items() if name in theirs}
        sizes = {name: size_of(checkpoint, *place) for name, place in self.sizes.items()}
        ids = {name: theirs.get(name) for name in IDS}
        computed = self.computed(theirs)
        if "rope_parameters" in computed:  # which the older fields would replace
            same = {name: value for name, value in same.items() if name not in OLD_ROTATION}
        return {**ids, **same, **renamed, **self.fixed, **computed, **sizes}


def size_of(checkpoint: Checkpoint, name: str, dim: int) -> int:
    return checkpoint.shape(name)[dim]


class Normalised:
    """Give each row of a weight the length one, as a head does that divides by the lengths."""

    def forward(self, tensors: Tensors, config: Any) -> Tensors:
        return tuple(torch.nn.functional.normalize(tensor) for tensor in tensors)

    def inverse(self, tensors: Tensors, config: Any) -> Tensors:
        return tensors
