"""A file that is asked, and what all kinds of files are asked for."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import GenerationConfig, PreTrainedTokenizerBase

from ..engine.errors import ConversionError
from ..engine.models import LoadedModel
from ..engine.side_files import first_line
from ..runtimes.proof import EXACT
from ..runtimes.registry import RUNTIMES
from ..runtimes.runtime import Running, Runtime
from .answer import Answer
from .model import Model, generation_in, tokenizer_in
from .numbers_in import FEW, FLOAT32, HALF, few_bits_in

Chat = list[dict[str, str]]
CT2_FILE = "model.bin"
TOLERANCES = {FLOAT32: EXACT, HALF: 2e-2, FEW: 1e-2}


class Opened(ABC):
    """A file that was opened. `few_bits` says that its weights have lost more than float16 does."""

    title: str
    few_bits = False
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

    def __init__(self, model: Model, folder: Path) -> None:
        super().__init__(model)
        self.folder = folder
        self.tokenizer = tokenizer_in(folder)
        self.generation = generation_in(folder)

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
        super().__init__(model, folder)
        self.runtime = runtime
        runtime.refuse_missing_packages()
        self.title = runtime.title
        with self.opening():
            kind = few_bits_in(runtime.name, folder)
        self.few_bits, self.tolerance = kind == FEW, TOLERANCES[kind]

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
    except (ValueError, TypeError, TemplateError):
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
