"""The model that a file is compared with: a folder of a class of transformers, or of ours."""

import contextlib
import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    MODEL_MAPPING,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.initialization import no_init_weights

from ..engine.aliases import Batch, Fields, FilePath, State
from ..engine.errors import ConversionError
from ..engine.format import OURS, Format
from ..engine.heads import only_architecture
from ..engine.models import Library, LoadedModel
from ..engine.proof import padded_batch, real_logits
from ..engine.registry import FORMATS, model_type_of, refuse_unreadable
from ..engine.side_files import GENERATION, first_line, own_tokenizer
from ..runtimes.exporting import library_of
from ..runtimes.runtime import Source

ALONE = "tokenizer.json"


class Model:
    """A folder: its class, configuration, tokenizer and settings of generation."""

    def __init__(self, folder: FilePath) -> None:
        refuse_unreadable(folder)
        self.folder = Path(folder)
        self.library = library_for(self.folder)
        self.config = self.library.load_config(folder)
        self.tokenizer = tokenizer_in(self.folder)
        self.generation = generation_in(self.folder) or GenerationConfig.from_model_config(
            self.config
        )

    @cached_property
    def loaded(self) -> LoadedModel:
        """Load the model, and see that it can be asked for texts."""
        try:
            loaded = self.library.load(self.folder)
            real_logits(loaded, padded_batch(loaded, longest=3))
        except ConversionError:
            raise
        except Exception as error:  # models of images, sound, and others
            raise ConversionError(
                f"{self.folder} holds a {self.library.model_name}, which cannot be asked for the "
                f"logits of texts ({first_line(error)}): choose a model of texts"
            ) from error
        return loaded

    @property
    def state(self) -> State:
        return self.loaded.model.state_dict()

    def body(self) -> "Model":
        """Return an encoder without its head, which some runtimes leave out; else the model."""
        found = MODEL_MAPPING.get(type(self.config), None)
        if not self.library.is_encoder or found is None or self.config.model_type in OURS:
            return self
        bare, format = copy.copy(self), FORMATS.get(self.config.model_type)
        may_lack = format.theirs.may_lack if isinstance(format, Format) else ()
        bare.library = replace(self.library, model_name=found.__name__, may_lack=may_lack)
        return bare

    def source(self, folder: Path) -> Source:
        """Return what opens the files of a runtime, whatever they say of the configuration."""
        own = {one.name: getattr(self.library, one.name) for one in fields(Library)}
        library = GivenLibrary(**own, given=self.config)
        return Source(folder, library, self.config, "float32", self.tokenizer)

    def changed(self, fields: Fields, state: State) -> LoadedModel:
        """Return the model with other fields in its configuration, and with these weights."""
        config = copy.deepcopy(self.config)
        for name, value in fields.items():
            setattr(config, name, value)
        config._experts_implementation = "eager"  # which takes experts of every size, and float64
        with no_init_weights():
            model = self.library.model_class(config).eval()
        model.load_state_dict(state, strict=False, assign=True)
        if config.tie_word_embeddings:
            model.tie_weights()
        return replace(self.loaded, model=model)

    def rounded(self, dtype: torch.dtype | None) -> LoadedModel:
        """Return the model with its weights rounded to a dtype, if there is one."""
        if dtype is None:
            return self.loaded
        rounded = {
            name: x.to(dtype).to(x.dtype) if x.is_floating_point() else x
            for name, x in self.state.items()
        }
        return self.changed({}, rounded)

    def batch(self, length: int) -> Batch:
        """Return three sequences with padding, of which the longest has so many tokens."""
        return padded_batch(self.loaded, longest=length)


@dataclass(frozen=True, kw_only=True)
class GivenLibrary(Library):
    """A class with a configuration that no folder has to hold."""

    given: PreTrainedConfig

    def load_config(self, folder: FilePath, settings: Fields | None = None) -> PreTrainedConfig:
        return copy.deepcopy(self.given)


def library_for(folder: Path) -> Library:
    """Return the class that config.json names, of ours or of transformers."""
    model_type = model_type_of(folder)
    if model_type in OURS:
        return library_of(folder)
    name = only_architecture(folder)
    found: Any = getattr(transformers, str(name), None)
    if getattr(found, "config_class", None) is None:
        raise ConversionError(
            f"architectures is [{name!r}] in {folder}/config.json, which transformers "
            f"{transformers.__version__} does not have: name one class of transformers or of ours"
        )
    format = FORMATS.get(model_type)
    if isinstance(format, Format) and format.theirs.model_name == name:
        return format.theirs
    config_name = found.config_class.__name__
    is_encoder = not found.can_generate()
    return Library(transformers, config_name, str(name), is_encoder=is_encoder)


def tokenizer_in(folder: Path) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer of a folder that has the files of one."""
    tokenizer, fault = own_tokenizer(folder)
    if fault is None:
        return tokenizer
    with contextlib.suppress(Exception):  # beside no config.json of a model
        return PreTrainedTokenizerFast(tokenizer_file=str(folder / ALONE))
    raise ConversionError(f"the tokenizer in {folder} cannot be opened ({fault}): fetch it again")


def generation_in(folder: Path) -> GenerationConfig | None:
    if not (folder / GENERATION).is_file():
        return None
    try:
        return GenerationConfig.from_pretrained(folder)
    except Exception as error:  # it takes any JSON
        raise ConversionError(f"{folder / GENERATION} cannot be read: {error}") from error
