"""The folder to check: a local one or a snapshot of a repository, with the content of its files."""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path, PurePosixPath

from .files import Files, UnreadableError
from .source_code import Source, reached

MODEL_CODE = Path(__file__).resolve().parents[1] / "model"  # of this package
CUSTOM_GENERATE = "custom_generate/generate.py"  # runs as soon as the model is loaded
# Formats of weights that transformers does not load such a model from.
NOT_LOADED = ("*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.onnx_data", "*.ot", "*.tflite")

# Formats of weights, which are not needed where a repository is only read.
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.npz", "*.nemo", "*.tar")

# Classes that come with sentence-transformers; what has no capital may be any object of its files.
NEIGHBOURS = re.compile(r"sentence_transformers(\.[a-z_0-9]+)*\.[A-Z]\w*")
NAME = re.compile(r"\S{1,200}")  # of an attribute, a module, a repository or a file
# Keys that can have code loaded: those that name it, and those that have something else loaded.
TELLING = {
    *("auto_map", "custom_pipelines", "trust_remote_code", "base_model_name_or_path"),
    *("parent_library", "megatron_core", "megatron_config", "backbone"),
    *("audio_tokenizer_name_or_path", "activation_function", "activation_fn", "tokenizer_class"),
    *("dtype", "torch_dtype", "attribute_map"),
}
TELLING_PARTS = ("attn_implementation", "experts_implementation", "trust_remote_code")


class CheckError(Exception):
    """A sentence that says why nothing could be checked."""


@dataclass
class Folder:
    """A model folder as its files describe it."""

    path: Path
    left_out: list[str] = field(default_factory=list)  # files that were not downloaded

    @cached_property
    def files(self) -> Files:
        return Files(self.path)

    @cached_property
    def documents(self) -> dict[str, object]:
        """The content of each JSON file; files that cannot be read are in `unread`."""
        names = self.files.named(".json", deep=True)
        return {name: self.content(name) for name in names if self.is_read(name)}

    @cached_property
    def contents(self) -> dict[str, object]:
        return {}

    def content(self, name: str) -> object:
        """Return the content of one JSON file, read once; None if it is unread."""
        if self.is_read(name):
            return self.contents[name]
        return None

    def is_read(self, name: str) -> bool:
        if name not in self.contents and name not in self.unread and name in self.files.names:
            try:
                self.contents[name] = self.files.read_json(name)
            except UnreadableError as error:
                self.unread[name] = str(error)
        return name in self.contents

    @cached_property
    def unread(self) -> dict[str, str]:
        """JSON file → why it cannot be read; complete once `documents` have been read."""
        return {}

    @cached_property
    def config(self) -> dict:
        return self.read_json("config.json")

    def read_json(self, name: str) -> dict:
        """Return the object in a JSON file, or {} if there is none."""
        content = self.content(name)
        return content if isinstance(content, dict) else {}

    @cached_property
    def telling(self) -> list[tuple[str, str, object]]:
        """(file, key, value) of every key that can have code loaded, in all JSON files."""
        found = (
            (name, *pair) for name, content in self.documents.items() for pair in keys(content)
        )
        return [
            line
            for line in found
            if line[1] in TELLING or any(part in line[1] for part in TELLING_PARTS)
        ]

    @cached_property
    def data(self) -> dict[str, list[str]]:
        """Key → the names and switches that it has in the JSON files, which code may read by it."""
        found: dict[str, dict[str, None]] = {}
        for content in self.documents.values():
            for key, value in values_below(content):
                if isinstance(value, bool) or (isinstance(value, str) and NAME.fullmatch(value)):
                    found.setdefault(key, {})[str(value)] = None
        return {key: list(values) for key, values in found.items()}

    @cached_property
    def references(self) -> list[tuple[str, str, object]]:
        """(file, purpose, "module.Class") of every class that a JSON file names."""
        found = []
        for name, key, value in self.telling:
            if key == "auto_map" and isinstance(value, dict):
                for auto, classes in value.items():
                    classes = classes if isinstance(classes, list) else [classes]
                    found += [(name, auto, reference) for reference in classes if reference]
            elif key == "custom_pipelines" and isinstance(value, dict):
                for task, pipeline in value.items():
                    if isinstance(pipeline, dict) and pipeline.get("impl"):
                        found.append((name, f"pipeline {task}", pipeline["impl"]))
        for name, content in self.documents.items():  # of sentence-transformers
            types: list[tuple[object, object]] = []
            if PurePosixPath(name).name == "modules.json" and isinstance(content, list):
                parts = [part for part in content if isinstance(part, dict)]
                types = [(part.get("name"), part.get("type")) for part in parts]
            elif isinstance(content, dict) and "structure" in content:  # of a Router
                given = content.get("types")
                types = list(given.items()) if isinstance(given, dict) else []
            for purpose, kind in types:
                if kind and not NEIGHBOURS.fullmatch(str(kind)):
                    found.append((name, f"module {purpose}", kind))
        return found

    @cached_property
    def all_sources(self) -> dict[str, Source]:
        names = self.files.named(".py", deep=True)
        return {name: Source(name, self.files) for name in names}

    @cached_property
    def sources(self) -> list[Source]:
        """The files of code that loading this folder runs."""
        named = {name for reference in self.references for name in code_files(reference)}
        return reached(self.all_sources, named | {f"{f}{CUSTOM_GENERATE}" for f in self.bases})

    @cached_property
    def bases(self) -> set[str]:
        """The folders that can be opened as a model, as "" or "0_Transformer/"."""
        configs = self.files.named("config.json", deep=True)
        return {"", *(name[: name.rfind("/") + 1] for name in configs)}

    @cached_property
    def parsed(self) -> list[Source]:
        return [source for source in self.sources if not source.fault]


def code_file(reference: tuple[str, str, object]) -> str:
    """Return the file of code that a reference names."""
    module = str(reference[2]).rpartition(".")[0]
    return f"{module.replace('.', '/')}.py"


def keys(content: object) -> Iterator[tuple[str, object]]:
    """Yield (key, value) of all objects in a JSON file, at any depth."""
    waiting = [content] if isinstance(content, (dict, list)) else []
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield from part.items()
        elements = part.values() if isinstance(part, dict) else part
        waiting += [element for element in elements if isinstance(element, (dict, list))]


def code_files(reference: tuple[str, str, object]) -> list[str]:
    """Return the files of code that a reference may name: at the top, or beside its JSON file.

    sentence-transformers opens inner folders as models of their own.
    """
    file, name = reference[0], code_file(reference)
    return list(dict.fromkeys([f"{file[: file.rfind('/') + 1]}{name}", name]))


def values_below(content: object) -> Iterator[tuple[str, object]]:
    """Yield (key, value) of all objects in a JSON file; elements of a list have its key."""
    waiting = [("", content)]
    while waiting:
        key, value = waiting.pop()
        yield key, value
        if isinstance(value, dict):
            waiting += reversed(value.items())
        elif isinstance(value, list):
            waiting += [(key, element) for element in reversed(value)]


@contextmanager
def located(
    source: str | os.PathLike,
    revision: str | None = None,
    cache: str | os.PathLike | None = None,
    with_weights: bool = True,
) -> Iterator[Path]:
    """Yield the folder to check: the one given, or a snapshot of a repository."""
    try:
        path = Path(source).expanduser()
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckError(f"{source} cannot be looked at ({error}): check the path") from error
    if is_folder:
        if revision:
            raise CheckError(f"{source} is a folder: a revision can only be chosen of a repository")
        yield path.resolve()
    elif exists:
        raise CheckError(f"{source} is a file: give the folder that it is in")
    elif str(source).count("/") > 1 or str(source).startswith((".", "/", "~")):
        raise CheckError(f"there is no folder {source}: check the path")
    elif cache:
        yield download(str(source), revision, cache, with_weights)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield download(str(source), revision, temporary, with_weights)


def left_out(repo_id: str, snapshot: Path) -> list[str]:
    """Return the weights of a repository that were not downloaded with a snapshot."""
    from huggingface_hub import list_repo_files

    try:
        names = list_repo_files(repo_id, revision=snapshot.name)
    except (OSError, ValueError):  # an HfHubHTTPError is an OSError; it was in the cache, offline
        return []
    ignored = (name for name in names if any(fnmatch(name, pattern) for pattern in WEIGHTS))
    return sorted(name for name in ignored if not (snapshot / name).exists())


def download(
    repo_id: str, revision: str | None, cache: str | os.PathLike, with_weights: bool
) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    reasons = {  # the first class is a subclass of the second one
        GatedRepoError: "is gated: ask for access on its page, then log in with `hf auth login`",
        RepositoryNotFoundError: "is neither a folder here nor a repository that you may see: "
        "check the name, or log in with `hf auth login`",
        RevisionNotFoundError: f"has no revision {revision}: choose one of its page",
        HFValidationError: "is neither a folder here nor a repository's name (user/name): check it",
    }
    ignored = [*NOT_LOADED, *(() if with_weights else WEIGHTS)]
    options = {"revision": revision, "cache_dir": cache, "ignore_patterns": ignored}
    try:
        return Path(snapshot_download(repo_id, **options))
    # A ValueError: it is not in the cache, and the client is set to be offline.
    except (HfHubHTTPError, OSError, ValueError) as error:
        other = f"cannot be downloaded ({type(error).__name__}): check the connection, or give a "
        other += "folder that has been downloaded"
        known = (reason for kind, reason in reasons.items() if isinstance(error, kind))
        raise CheckError(f"{repo_id} {next(known, other)}") from error


def opened(path: Path, left_out: Iterable[str] = ()) -> Folder:
    """Return the folder; refuse one without a config.json that can be read."""
    folder = Folder(path, list(left_out))
    is_read = folder.is_read("config.json")
    fault = folder.unread.get("config.json") or folder.files.faults.get("config.json")
    if fault:
        raise CheckError(f"{path / 'config.json'} {fault}")
    if not is_read:
        raise CheckError(f"{path} has no config.json: give a folder that save_pretrained wrote")
    if not isinstance(folder.content("config.json"), dict):
        raise CheckError(f"{path / 'config.json'} holds no JSON object: save the model again")
    return folder


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, as `sha256sum` prints it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
