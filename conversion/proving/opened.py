"""A file that is asked, and what all kinds of files are asked for."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from ..engine.checkpoints import read_json
from ..engine.errors import ConversionError
from ..engine.models import LoadedModel
from ..engine.side_files import first_line
from ..engine.translation import as_list
from ..runtimes.proof import EXACT
from ..runtimes.registry import RUNTIMES
from ..runtimes.runtime import Running, Runtime
from .answer import Answer
from .model import Model, generation_in, tokenizer_in
from .numbers_in import BFLOAT16, EIGHT, FOUR, HALF, TOLERANCES, kind_in

Chat = list[dict[str, str]]
CT2_FILE = "model.bin"
BITS = {EIGHT: 8, FOUR: 4}
HALVES = {HALF: torch.float16, BFLOAT16: torch.bfloat16}


class Opened(ABC):
    """A file that was opened. `bits` are those of its weights, where they are few."""

    title: str
    bits: int | None = None
    tolerance = EXACT  # of logits, relative to the largest

    def __init__(self, model: Model) -> None:
        self.model = model

    @abstractmethod
    def ids(self, text: str) -> list[int] | None:
        """Return the ids of a text, None if the file has no tokenizer."""

    @abstractmethod
    def vocabulary(self) -> dict[str, int]:
        """Return the id of each token, as far as the file says it."""

    def askable(self, text: str) -> str:
        """Return the part of a text for which the file claims the model's ids."""
        return text

    @abstractmethod
    def chat(self, chat: Chat, answers: bool) -> str | None:
        """Return a rendered chat, None if it has no template for it."""

    @abstractmethod
    def special(self) -> dict[str, object]:
        """Return the ids of special tokens and the settings of generation, as far as it says."""

    @cached_property
    @abstractmethod
    def running(self) -> Running: ...

    @property
    def start(self) -> LoadedModel:
        """Return the model that the file is to compute like."""
        return self.model.loaded

    def more_answers(self) -> list[Answer]:
        """Return what can be asked of this kind of file alone."""
        return []


class OpenedFolder(Opened):
    """A folder with the tokenizer and the settings of transformers."""

    def __init__(
        self,
        model: Model,
        tokenizer: PreTrainedTokenizerBase | None,
        generation: GenerationConfig | None,
    ) -> None:
        super().__init__(model)
        self.tokenizer, self.generation = tokenizer, generation

    def ids(self, text: str) -> list[int] | None:
        return None if self.tokenizer is None else self.tokenizer(text)["input_ids"]

    def vocabulary(self) -> dict[str, int]:
        return {} if self.tokenizer is None else self.tokenizer.get_vocab()

    def chat(self, chat: Chat, answers: bool) -> str | None:
        return rendered(self.tokenizer, chat, answers)

    def special(self) -> dict[str, object]:
        return {**tokens_of(self.tokenizer), **settings_of(self.generation)}


class OpenedExport(OpenedFolder):
    """The files of a runtime in a folder."""

    def __init__(self, model: Model, folder: Path, runtime: Runtime) -> None:
        asked = model.body() if runtime.name == "ctranslate2" else model
        super().__init__(asked, tokenizer_in(folder), generation_in(folder))
        self.folder, self.runtime = folder, runtime
        runtime.refuse_missing_packages()
        self.title = runtime.title
        with self.opening():
            self.kind = kind_in(runtime.name, folder)
        self.bits, self.tolerance = BITS.get(self.kind), TOLERANCES[self.kind]

    @cached_property
    def start(self) -> LoadedModel:
        """Return the model with weights that are rounded like those of the files."""
        return self.model.rounded(HALVES.get(self.kind))

    def special(self) -> dict[str, object]:
        """Return what the folder says, and the end that CTranslate2 reads in its config.json."""
        found, ours = super().special(), as_list(self.model.generation.eos_token_id)
        if self.runtime.name != "ctranslate2" or not ours:
            return found
        told = read_json(self.folder / "config.json").get("eos_token")
        end = self.vocabulary().get(str(told))
        return found if end is None or end in ours else {**found, "eos_token_id": end}

    @cached_property
    def running(self) -> Running:
        with self.opening():
            return self.runtime.open(self.model.source(self.folder), self.folder)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Say in one sentence that files cannot be opened."""
        try:
            yield
        except Exception as error:  # runtimes fail in many ways
            raise ConversionError(
                f"{self.title} does not open {self.folder} ({first_line(error)}): fetch it again, "
                "or convert it anew"
            ) from error


def rendered(
    tokenizer: PreTrainedTokenizerBase | None,
    chat: Chat,
    answers: bool,
    template: str | None = None,
) -> str | None:
    """Return a chat as text, None without a template or where it refuses this chat."""
    if tokenizer is None or (template or tokenizer.chat_template) is None:
        return None
    render = partial(tokenizer.apply_chat_template, tokenize=False, chat_template=template)
    try:
        return str(render(chat, add_generation_prompt=answers))
    except Exception:  # a template is a program
        return None


def tokens_of(tokenizer: PreTrainedTokenizerBase | None) -> dict[str, object]:
    names = ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id")
    if tokenizer is None:
        return {}
    return {f"the tokenizer's {name}": getattr(tokenizer, name) for name in names}


def settings_of(generation: GenerationConfig | None) -> dict[str, Any]:
    """Return the settings that differ from the defaults, and all ids of tokens."""
    if generation is None:
        return {}
    unset = ("transformers_version", "_from_model_config", "cache_implementation", "use_cache")
    told = {name: value for name, value in generation.to_diff_dict().items() if name not in unset}
    ids = [name for name in vars(generation) if name.endswith("token_id")]
    return {**told, **{name: getattr(generation, name) for name in ids}}


def runtime_of(folder: Path) -> Runtime | None:
    """Return the runtime whose files a folder holds."""
    for runtime in RUNTIMES.values():
        if any((folder / name).is_file() for name in runtime.marks):
            return runtime
    is_ctranslate2 = (folder / CT2_FILE).is_file() and any(folder.glob("*vocabulary.*"))
    return RUNTIMES["ctranslate2"] if is_ctranslate2 else None
