"""Read checkpoints lazily and without running code; write them one shard at a time."""

import argparse
import json
import os
import pickle
import re
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import torch
from packaging.version import Version
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hf_tformer.file_integrity import fault_of_pickle, fault_of_text, json_object
from hf_tformer.path_safety import fault_of_file

from .aliases import Fields, FilePath, NamedTensors, State
from .errors import ConversionError

SHARD_BYTES = 2 * 10**9
INDEX = "model.safetensors.index.json"
# The pages that were read of a file stay in memory while it is open: this much may.
READ_BEFORE_REOPENING = 4 * 2**20
TOUCHED = 2**16  # bytes that Linux maps around a page which is read; a write maps one by one
# In the order of preference: formats without pickle come first.
FILES = (INDEX, "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin")
# Where training programs put weights and settings in the dictionary that they save.
WEIGHTS = ("model", "state_dict", "model_state_dict")
DESCRIPTIONS = ("config", "settings", "model_args")  # the last one takes precedence
# Prefixes of torch.compile and DistributedDataParallel.
WRAPPERS = ("_orig_mod.", "module.")
# The prefix of x-transformers' AutoregressiveWrapper, and a tensor within.
AUTOREGRESSIVE, EMBEDDINGS = "net.", "token_emb.emb.weight"
Written = tuple[Path, dict[str, int]]  # a shard and the size of each tensor in bytes
# The only class allowed beside tensors and Python's values: settings of attention-is-all-you-need.
ALLOWED = (argparse.Namespace,)


class SafeShard:
    """A safetensors file, of which only the header is read at first."""

    def __init__(self, path: FilePath) -> None:
        self.path = path
        self.file: safe_open | None = None
        self.read_so_far = 0
        try:
            with safe_open(path, framework="pt") as file:
                headers = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                self.shapes = {name: header.get_shape() for name, header in headers.items()}
                self.types = {name: header.get_dtype() for name, header in headers.items()}
        except SafetensorError as error:
            raise ConversionError(fault_of_safetensors(path, error)) from error

    def names(self) -> list[str]:
        return list(self.shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.shapes[name])

    def nbytes(self, name: str) -> int:
        bits = re.search(r"\d+", self.types[name])  # F32, BF16, I8, F8_E4M3, BOOL
        return prod(self.shapes[name]) * (int(bits[0]) if bits else 8) // 8

    def read(self, name: str) -> torch.Tensor:
        if self.read_so_far + self.nbytes(name) > READ_BEFORE_REOPENING:
            self.close()  # so that a small tensor never keeps the mapping of a large one
        if self.file is None:
            self.file = safe_open(self.path, framework="pt")
        self.read_so_far += self.nbytes(name)
        return self.file.get_tensor(name)

    def close(self) -> None:
        self.file, self.read_so_far = None, 0


def fault_of_safetensors(path: FilePath, error: Exception) -> str:
    """Return why a file cannot be read: its beginning tells what is damaged from another kind."""
    if fault := fault_of_text(Path(path)):
        return fault
    with Path(path).open("rb") as file:
        head = file.read(9)  # the size of the header, and its brace
    if head[8:] in (b"", b"{"):
        return f"{path} is truncated ({error}): fetch it again"
    return f"{path} is no safetensors file ({error}): give the file that holds the weights"


class PickledShard:
    """A dictionary of tensors from torch.save, which stay on the disk until they are used."""

    def __init__(self, path: FilePath, content: object = None) -> None:
        content = read_pickle(path) if content is None else content
        if not is_state_dict(content):
            raise ConversionError(
                f"{path} is no dict of tensors: save model.state_dict() as safetensors"
            )
        self.tensors: State = content

    def names(self) -> list[str]:
        return list(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def nbytes(self, name: str) -> int:
        return self.tensors[name].nbytes

    def read(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def close(self) -> None:
        """Do nothing: the system reclaims the pages when it needs them."""


def is_state_dict(content: object) -> TypeGuard[State]:
    return isinstance(content, dict) and all(
        isinstance(name, str) and torch.is_tensor(tensor) for name, tensor in content.items()
    )


def read_pickle(path: FilePath) -> object:
    """Return what torch.save wrote, if it is tensors and plain values; no code of it runs."""
    if Version(torch.__version__) < Version("2.6"):
        raise ConversionError(
            f"torch is {torch.__version__}, in which {path} could run code: upgrade to 2.6 or later"
        )
    if fault := fault_of_pickle(Path(path)):
        raise ConversionError(fault)
    try:
        with torch.serialization.safe_globals(list(ALLOWED)):
            return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except DAMAGE as error:
        raise ConversionError(
            f"{path} is damaged or holds more than plain tensors, which could run code: save it "
            "again as safetensors where you trust it"
        ) from error


# The errors of torch.load for a file that it cannot or will not read.
DAMAGE = (
    pickle.UnpicklingError,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
)


class Shard(Protocol):
    """A file that holds tensors by their names, each read on demand."""

    def names(self) -> list[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def nbytes(self, name: str) -> int: ...

    def read(self, name: str) -> torch.Tensor: ...

    def close(self) -> None: ...


class Checkpoint:
    """The tensors of all shards by name, each read on demand.

    `description` are settings that the files hold, `prefix` stands before each name.
    """

    def __init__(
        self, shards: Iterable[Shard], description: Fields | None = None, prefix: str = ""
    ) -> None:
        self.places: dict[str, Shard] = {}
        self.description, self.prefix = description or {}, prefix
        self.last_read: Shard | None = None
        for shard in shards:
            for name in shard.names():
                name = name.removeprefix(prefix)
                if name in self.places:
                    raise ConversionError(f"{name} is in two shards: fetch the folder again")
                self.places[name] = shard

    def names(self) -> list[str]:
        return sorted(self.places)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.place(name).shape(self.prefix + name)

    def nbytes(self, name: str) -> int:
        return self.place(name).nbytes(self.prefix + name)

    def read(self, name: str) -> torch.Tensor:
        shard = self.place(name)
        if self.last_read is not None and self.last_read is not shard:
            self.last_read.close()
        self.last_read = shard
        return shard.read(self.prefix + name)

    def place(self, name: str) -> Shard:
        if name not in self.places:
            raise ConversionError(
                f"tensors are missing: {name}; check that the file holds a whole model"
            )
        return self.places[name]


def open_file(path: FilePath) -> Checkpoint:
    """Open the weights in one file, without what training programs put around them."""
    path = Path(path)
    if path.suffix == ".safetensors":
        safe = SafeShard(path)
        return Checkpoint([safe], prefix=common_prefix(safe.names()))
    content = read_pickle(path)
    shard = PickledShard(path, weights_in(content))
    return Checkpoint([shard], description_in(content), common_prefix(shard.names()))


def weights_in(content: object) -> object:
    inner = content if isinstance(content, dict) else {}
    found = [inner[key] for key in WEIGHTS if isinstance(inner.get(key), dict)]
    return found[0] if found else content


def description_in(content: object) -> Fields:
    """Return the settings that were saved with the weights, as one dictionary."""
    merged: Fields = {}
    saved = content if isinstance(content, dict) else {}
    for key in DESCRIPTIONS:
        settings = saved.get(key)
        settings = vars(settings) if isinstance(settings, ALLOWED) else settings
        merged.update(settings if isinstance(settings, dict) else {})
    return merged


def common_prefix(names: list[str]) -> str:
    """Return what wrappers around the model have put before every name."""
    prefix = ""
    while added := [w for w in WRAPPERS if names and all(n.startswith(prefix + w) for n in names)]:
        prefix += added[0]
    return prefix + AUTOREGRESSIVE if prefix + AUTOREGRESSIVE + EMBEDDINGS in names else prefix


def open_checkpoint(folder: FilePath) -> Checkpoint:
    """Open the weights in a folder, in whichever format they were saved."""
    for file in FILES:
        path = Path(folder) / file
        if path.is_file():
            paths = shard_paths(path) if path.suffix == ".json" else [path]
            is_safe = "safetensors" in file
            return Checkpoint([(SafeShard if is_safe else PickledShard)(path) for path in paths])
    raise ConversionError(f"{folder} holds no weights: one of {', '.join(FILES)} is needed")


def shard_paths(index: Path) -> list[Path]:
    """Return the files that an index names; refuse missing ones and those that lie elsewhere."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ConversionError(f"{index} has no weight_map: fetch it again")
    paths = []
    for name in sorted(set(map(str, weight_map.values()))):
        if Path(name).name != name:
            raise ConversionError(f"{index} names {name!r}, which does not lie beside it")
        path = index.parent / name
        if not path.is_file():
            raise ConversionError(f"{path} is missing, though {index.name} names it: fetch it")
        if fault := fault_of_file(path, index.parent):
            raise ConversionError(fault)
        paths.append(path)
    return paths


def read_json(path: FilePath) -> dict[str, Any]:
    try:
        return json_object(Path(path))
    except FileNotFoundError as error:
        raise ConversionError(
            f"{path} is missing: give a folder with config.json, or a file"
        ) from error
    except ValueError as error:
        raise ConversionError(str(error)) from error


def write_checkpoint(folder: Path, tensors: NamedTensors, shard_bytes: int = SHARD_BYTES) -> None:
    """Write tensors as they come; never more than one shard is in memory."""
    shards: list[Written] = []
    shard: State = {}
    size = 0
    for name, tensor in tensors:
        if shard and size + tensor.nbytes > shard_bytes:
            shards.append(write_shard(folder, len(shards), shard))
            shard, size = {}, 0
        shard[name] = own_memory(tensor)
        size += tensor.nbytes
        del tensor  # before the next one is read
    shards.append(write_shard(folder, len(shards), shard))
    name_shards(folder, shards)


def own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor that shares no memory, as safetensors requires."""
    tensor = tensor.detach().contiguous()
    is_part = tensor.untyped_storage().nbytes() != tensor.nbytes
    return tensor.clone() if is_part else tensor


def write_shard(folder: Path, number: int, tensors: State) -> Written:
    path = folder / f"shard-{number}.safetensors"
    for tensor in tensors.values():  # reads what still lies in a file, many pages at a time
        tensor.flatten().view(torch.uint8)[::TOUCHED].sum()
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        found = re.search(r"os error (\d+)", str(error))
        if found is None:
            raise OSError(f"{path} could not be written: {error}") from error
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error
    return path, {name: tensor.nbytes for name, tensor in tensors.items()}


def name_shards(folder: Path, shards: list[Written]) -> None:
    """Give the files the names that transformers looks for, which contain their number."""
    if len(shards) == 1:
        shards[0][0].rename(folder / "model.safetensors")
        return
    weight_map: dict[str, str] = {}
    total = 0
    for number, (path, sizes) in enumerate(shards, start=1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        path.rename(folder / name)
        weight_map.update(dict.fromkeys(sizes, name))
        total += sum(sizes.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
