"""The folder to check, the one given or a snapshot of a repository, and what its files say."""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .source_code import Source, reached, syntax_fault

CODE_MAPS = ("config.json", "tokenizer_config.json", "processor_config.json")
CUSTOM_GENERATE = "custom_generate/generate.py"  # runs as soon as the model is loaded
# Formats that transformers does not load a model of this kind from.
NOT_LOADED = ("*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.onnx_data", "*.ot", "*.tflite")


class CheckError(Exception):
    """Why there was nothing to check, in one sentence."""


@dataclass
class Folder:
    """A model folder as its files describe it."""

    path: Path
    config: dict = field(default_factory=dict)

    def read_json(self, name: str) -> dict:
        """The content of a JSON file, {} where there is none or it is no object."""
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    @cached_property
    def references(self) -> list[tuple[str, str, str]]:
        """(file, Auto class, "module.Class") of every entry of every auto_map."""
        found = []
        for name in CODE_MAPS:
            auto_map = self.read_json(name).get("auto_map") or {}
            for auto, value in auto_map.items() if isinstance(auto_map, dict) else ():
                values = value if isinstance(value, list) else [value]
                found += [(name, auto, reference) for reference in values if reference]
        return found

    @cached_property
    def sources(self) -> list[Source]:
        """The files of code that loading this folder runs."""
        entries = {f"{str(reference).rpartition('.')[0]}.py" for *_, reference in self.references}
        return reached(self.path, {*entries, CUSTOM_GENERATE})

    @cached_property
    def parsed(self) -> list[Source]:
        return [source for source in self.sources if not syntax_fault(source)]


@contextmanager
def located(
    source: str | Path, revision: str | None = None, cache: str | Path | None = None
) -> Iterator[Path]:
    """The folder to check: the one given, or a snapshot of a repository."""
    path = Path(source).expanduser()
    if path.is_dir():
        if revision:
            raise CheckError(f"{source} is a folder: a revision can only be chosen of a repository")
        yield path.resolve()
    elif path.exists():
        raise CheckError(f"{source} is a file: give the folder that it is in")
    elif str(source).count("/") > 1 or str(source).startswith((".", "/", "~")):
        raise CheckError(f"there is no folder {source}: check the path")
    elif cache:
        yield download(str(source), revision, cache)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield download(str(source), revision, temporary)


def download(repo_id: str, revision: str | None, cache: str | Path) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return Path(
            snapshot_download(
                repo_id, revision=revision, cache_dir=cache, ignore_patterns=list(NOT_LOADED)
            )
        )
    except GatedRepoError as error:
        reason = "is gated: ask for access on its page, then log in with `hf auth login`"
        raise CheckError(f"{repo_id} {reason}") from error
    except RepositoryNotFoundError as error:
        reason = "is neither a folder here nor a repository that you may see: check the name"
        raise CheckError(f"{repo_id} {reason}, or log in with `hf auth login`") from error
    except RevisionNotFoundError as error:
        raise CheckError(f"{repo_id} has no revision {revision}: choose one of its page") from error
    except HFValidationError as error:
        reason = "is neither a folder here nor a repository's name (user/name): check it"
        raise CheckError(f"{repo_id} {reason}") from error
    # A ValueError: it is not in the cache, and the client is told to stay offline.
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = f"cannot be downloaded ({type(error).__name__}): check the connection, or give"
        raise CheckError(f"{repo_id} {reason} a folder that has been downloaded") from error


def read_config(path: Path) -> dict:
    file = path / "config.json"
    if not file.is_file():
        raise CheckError(f"{path} has no config.json: give a folder that save_pretrained wrote")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckError(f"{file} is not JSON ({error}): save the model again") from error
    if not isinstance(config, dict):
        raise CheckError(f"{file} holds no JSON object: save the model again")
    return config


def digest(path: Path) -> str:
    """The SHA-256 of a file, as `sha256sum` prints it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
