"""The files beside the weights: the tokenizer and the generation settings.

Files of the source are copied as they are. A tokenizer that the user gives replaces the source's
own. Only then are values filled in that nothing contradicts: roles (beginning, end, padding) for
which the tokenizer has a special token without a name, and ids that generation_config.json lacks.
config.json is never changed. Disagreements are reported, not corrected.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from hf_tformer.path_safety import TEMPLATES, fault_of_path, printable

from .aliases import Fields, FilePath
from .checkpoints import read_json
from .errors import ConversionError
from .sentences import copy_sentence_modules
from .translation import as_list

# The files of a tokenizer that transformers looks for.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "source.spm",
    "target.spm",
    "target_vocab.json",
)
CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "the tokenizer"
ROLES = ("pad", "bos", "eos")
# A text that tokenizers cut in many ways.
TRICKY = "NASA's iPhone12Pro  costs 1,234.50€;\n\n\tthey'RE naïve: 你好 привет x_1**2 👍"
MORE_ROLES = ("cls", "sep", "mask")  # of encoders


def given_tokenizer(
    tokenizer: PreTrainedTokenizerBase | FilePath | None,
) -> PreTrainedTokenizerBase | None:
    """Open the tokenizer that the user gives as folder, tokenizer.json, repository or object."""
    if tokenizer is None or isinstance(tokenizer, PreTrainedTokenizerBase):
        return tokenizer
    path = Path(tokenizer).expanduser()
    if path.exists() and (fault := fault_of_path(path)):
        raise ConversionError(fault)
    try:
        if path.is_file():
            return PreTrainedTokenizerFast(tokenizer_file=str(path))
        place = path if path.is_dir() else str(tokenizer)
        return AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    except Exception as error:  # such files fail in many ways
        raise ConversionError(
            f"no tokenizer could be read from {tokenizer} ({first_line(error)}): give a folder, a "
            "tokenizer.json or a repository on the Hub whose tokenizer needs no code of its own"
        ) from error


def own_tokenizer(folder: FilePath) -> tuple[PreTrainedTokenizerBase | None, str | None]:
    """Return the tokenizer of a folder, None if it has none, and the error if it was not read."""
    if not any((Path(folder) / name).is_file() for name in TOKENIZER_FILES):
        return None, None
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False), None
    except Exception as error:  # as above
        return None, first_line(error)


def first_line(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {str(error).strip()}".splitlines()[0])


def refuse_too_many_tokens(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> None:
    """Refuse a tokenizer with ids that have no embedding; embeddings without an id do no harm."""
    needed = max(tokenizer.get_vocab().values(), default=-1) + 1
    rows = model.get_input_embeddings().num_embeddings
    if needed > rows:
        raise ConversionError(
            f"the tokenizer needs {needed} embeddings, but vocab_size is {rows}: give the "
            f"tokenizer of this model, or call model.resize_token_embeddings({needed}) first"
        )


class SideFiles:
    """The files that will stand beside the weights, checked before anything is written."""

    def __init__(
        self,
        src: FilePath,
        source: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | FilePath | None,
    ) -> None:
        self.src, self.source = Path(src), source
        self.generates = source.can_generate()
        self.given = given_tokenizer(tokenizer)
        self.own, self.unread = (None, None) if self.given else own_tokenizer(src)
        self.tokenizer = self.given or self.own
        if self.tokenizer is not None:
            refuse_too_many_tokens(self.tokenizer, source)

    def save(self, folder: Path) -> list[str]:
        """Write everything beside the weights and return the disagreements in it."""
        self.save_generation_config(folder)
        copy_sentence_modules(self.src, folder)
        if self.given is not None:
            config = read_json(folder / CONFIG)
            name_roles(self.given, config)
            save(self.given, folder)
            if self.generates:
                fill_generation_config(folder / GENERATION, config, self.given)
            is_copied = False
        else:
            is_copied = self.copy_tokenizer(folder)
        return [
            *self.unread_tokenizer(),
            *(() if is_copied else self.other_tokenizer(folder)),
            *disagreements(folder, self.tokenizer, self.source),
        ]

    def save_generation_config(self, folder: Path) -> None:
        """Write the generation settings, which old folders keep in config.json.

        They are read from the file: a configuration object has dropped them.
        """
        if not self.generates:
            return
        if (self.src / GENERATION).is_file():
            shutil.copyfile(self.src / GENERATION, folder / GENERATION)
            return
        fields = self.source.config.to_dict()
        if (self.src / CONFIG).is_file():
            fields |= read_json(self.src / CONFIG)
        # Not save_pretrained, which refuses some of these settings.
        GenerationConfig.from_model_config(fields).to_json_file(folder / GENERATION)

    def copy_tokenizer(self, folder: Path) -> bool:
        """Return whether the files that were copied are opened as they were, or as nothing."""
        for name in TOKENIZER_FILES:
            if (self.src / name).is_file():
                shutil.copyfile(self.src / name, folder / name)
        for template in (self.src / TEMPLATES).glob("*.jinja"):
            (folder / TEMPLATES).mkdir(exist_ok=True)
            shutil.copyfile(template, folder / TEMPLATES / template.name)
        # In old folders without tokenizer_class the model_type decides, which changes.
        if self.own is None or are_alike(self.own, own_tokenizer(folder)[0]):
            return True
        save(self.own, folder)
        return False

    def unread_tokenizer(self) -> Iterator[str]:
        if self.unread:
            yield (
                f"the tokenizer beside the weights was copied but could not be read "
                f"({self.unread}): its ids were not compared; give one with --tokenizer"
            )

    def other_tokenizer(self, folder: Path) -> Iterator[str]:
        """Say that transformers cuts text in its own way, as for qwen2, whatever the file says."""
        opened = own_tokenizer(folder)[0]
        if opened is None or self.tokenizer is None:
            return
        if opened(TRICKY)["input_ids"] == self.tokenizer(TRICKY)["input_ids"]:
            return
        yield (
            f"AutoTokenizer opens this tokenizer as {type(opened).__name__}, which gives other ids "
            "than it had: open it with PreTrainedTokenizerFast.from_pretrained"
        )


def are_alike(first: PreTrainedTokenizerBase, second: PreTrainedTokenizerBase | None) -> bool:
    return type(first) is type(second) and state(first) == state(second)


def state(tokenizer: PreTrainedTokenizerBase) -> tuple[object, ...]:
    fast = getattr(tokenizer, "backend_tokenizer", None)
    content = fast.to_str() if fast is not None else tokenizer.get_vocab()
    return content, tokenizer.special_tokens_map, tokenizer.chat_template


def save(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save a tokenizer with the class that reads it, and without the path it was read from."""
    for name in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(name, None)
    tokenizer.save_pretrained(folder)


def name_roles(tokenizer: PreTrainedTokenizerBase, config: Fields) -> None:
    """Give a special token its role if the model has its id."""
    for role in (*ROLES, *MORE_ROLES):
        token = tokenizer.added_tokens_decoder.get(as_id(config.get(f"{role}_token_id")))
        if getattr(tokenizer, f"{role}_token") is None and token is not None and token.special:
            setattr(tokenizer, f"{role}_token", str(token))


def fill_generation_config(path: Path, config: Fields, tokenizer: PreTrainedTokenizerBase) -> None:
    """Add ids that the generation settings lack, if configuration and tokenizer agree."""
    settings = read_json(path)
    for role in ROLES:
        name = f"{role}_token_id"
        known = {as_id(config.get(name)), getattr(tokenizer, name)} - {None}
        if settings.get(name) is None and len(known) == 1:
            settings[name] = known.pop()
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def as_id(value: object) -> int | None:
    return value if isinstance(value, int) else None


def disagreements(
    folder: Path, tokenizer: PreTrainedTokenizerBase | None, source: PreTrainedModel
) -> Iterator[str]:
    """Yield a sentence for each special id on which the files beside the weights disagree."""
    generates = source.can_generate()
    files = {name: read_json(folder / name) for name in (CONFIG, GENERATION)[: 1 + generates]}
    names = [f"{role}_token_id" for role in (*ROLES, *MORE_ROLES, "decoder_start")]
    for name in names:
        known = {place: as_list(content.get(name)) for place, content in files.items()}
        if tokenizer is not None:
            known[TOKENIZER] = as_list(getattr(tokenizer, name, None))
        known = {place: found for place, found in known.items() if found}
        if known and not set.intersection(*map(set, known.values())):
            values = ", ".join(f"{shown(found)} in {place}" for place, found in known.items())
            reader = f"; generate() reads {GENERATION}" if generates else ""
            yield f"{name} is {values}: correct what is wrong{reader}"
    if not generates:
        return
    rows = source.get_output_embeddings().out_features
    for name, value in files[GENERATION].items():
        if name.endswith("_token_id") and any(number >= rows for number in as_list(value)):
            place = f"{name} is {value} in {GENERATION}"
            yield f"{place}, but there are {rows} logits: choose a lower id"


def shown(found: list[int]) -> int | list[int]:
    return found[0] if len(found) == 1 else found
