"""The folder to check: a local one or a snapshot of a repository, with the content of its files."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .files import Files, UnreadableError
from .source_code import Source, reached

MODEL_CODE = Path(__file__).resolve().parents[1] / "model"  # of this package
CUSTOM_GENERATE = "custom_generate/generate.py"  # runs as soon as the model is loaded
# Formats of weights that transformers does not load such a model from.
NOT_LOADED = ("*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.onnx_data", "*.ot", "*.tflite")


class CheckError(Exception):
    """A sentence that says why nothing could be checked."""


@dataclass
class Folder:
    """A model folder as its files describe it."""

    path: Path

    @cached_property
    def files(self) -> Files:
        return Files(self.path)

    @cached_property
    def documents(self) -> dict[str, object]:
        """The content of each JSON file; files that cannot be read are in `unread`."""
        contents = {}
        for name in self.files.named(".json", deep=True):
            try:
                contents[name] = self.files.read_json(name)
            except UnreadableError as error:
                self.unread[name] = str(error)
        return contents

    @cached_property
    def unread(self) -> dict[str, str]:
        """JSON file → why it cannot be read; complete once `documents` have been read."""
        return {}

    @cached_property
    def config(self) -> dict:
        return self.read_json("config.json")

    def read_json(self, name: str) -> dict:
        """Return the object in a JSON file, or {} if there is none."""
        content = self.documents.get(name)
        return content if isinstance(content, dict) else {}

    @cached_property
    def references(self) -> list[tuple[str, str, object]]:
        """(file, purpose, "module.Class") of every class that a JSON file names."""
        found = []
        for name, content in self.documents.items():
            for key, value in values_below(content):
                if key == "auto_map" and isinstance(value, dict):
                    for auto, classes in value.items():
                        classes = classes if isinstance(classes, list) else [classes]
                        found += [(name, auto, reference) for reference in classes if reference]
                elif key == "custom_pipelines" and isinstance(value, dict):
                    for task, pipeline in value.items():
                        if isinstance(pipeline, dict) and pipeline.get("impl"):
                            found.append((name, f"pipeline {task}", pipeline["impl"]))
        modules = self.documents.get("modules.json")  # of sentence-transformers
        for module in modules if isinstance(modules, list) else ():
            kind = module.get("type") if isinstance(module, dict) else None
            if kind and not str(kind).startswith("sentence_transformers."):
                found.append(("modules.json", str(module.get("name")), kind))
        return found

    @cached_property
    def all_sources(self) -> dict[str, Source]:
        names = self.files.named(".py", deep=True)
        return {name: Source(name, self.files) for name in names}

    @cached_property
    def sources(self) -> list[Source]:
        """The files of code that loading this folder runs."""
        return reached(self.all_sources, {CUSTOM_GENERATE, *map(code_file, self.references)})

    @cached_property
    def parsed(self) -> list[Source]:
        return [source for source in self.sources if not source.fault]


def code_file(reference: tuple[str, str, object]) -> str:
    """Return the file of code that a reference names."""
    module = str(reference[2]).rpartition(".")[0]
    return f"{module.replace('.', '/')}.py"


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
    source: str | os.PathLike, revision: str | None = None, cache: str | os.PathLike | None = None
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
        yield download(str(source), revision, cache)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield download(str(source), revision, temporary)


def download(repo_id: str, revision: str | None, cache: str | os.PathLike) -> Path:
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
    options = {"revision": revision, "cache_dir": cache, "ignore_patterns": list(NOT_LOADED)}
    try:
        return Path(snapshot_download(repo_id, **options))
    # A ValueError: it is not in the cache, and the client is set to be offline.
    except (HfHubHTTPError, OSError, ValueError) as error:
        other = f"cannot be downloaded ({type(error).__name__}): check the connection, or give a "
        other += "folder that has been downloaded"
        known = (reason for kind, reason in reasons.items() if isinstance(error, kind))
        raise CheckError(f"{repo_id} {next(known, other)}") from error


def opened(path: Path) -> Folder:
    """Return the folder; refuse one without a config.json that can be read."""
    folder = Folder(path)
    if "config.json" not in {*folder.documents, *folder.unread, *folder.files.faults}:
        raise CheckError(f"{path} has no config.json: give a folder that save_pretrained wrote")
    fault = folder.unread.get("config.json") or folder.files.faults.get("config.json")
    if fault:
        raise CheckError(f"{path / 'config.json'} {fault}")
    if not isinstance(folder.documents["config.json"], dict):
        raise CheckError(f"{path / 'config.json'} holds no JSON object: save the model again")
    return folder


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, as `sha256sum` prints it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
