"""Reading checkpoints lazily and without running anything; writing them one shard at a time."""

import argparse
import json
import os
import pickle
import re
from collections.abc import Iterable
from math import prod
from pathlib import Path

import torch
from packaging.version import Version
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hf_tformer.file_integrity import fault_of_pickle, json_object
from hf_tformer.path_safety import fault_of_file

from .errors import ConversionError

SHARD_BYTES = 2 * 10**9
INDEX = "model.safetensors.index.json"
# What has been read of a file stays in memory for as long as it is open: so much may.
READ_BEFORE_REOPENING = 4 * 2**20
TOUCHED = 2**16  # bytes that Linux maps around a page which is read; a write maps one by one
# In this order: what needs no pickle comes first.
FILES = (INDEX, "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin")
# Where training programs put the weights, and what they know about them, in the dict they save.
WEIGHTS = ("model", "state_dict", "model_state_dict")
DESCRIPTIONS = ("config", "settings", "model_args")  # the last one is the most trusted
# Added to each name by torch.compile and by DistributedDataParallel.
WRAPPERS = ("_orig_mod.", "module.")
Tensors = Iterable[tuple[str, torch.Tensor]]  # by name
Written = tuple[Path, dict[str, int]]  # a shard, and the bytes of each tensor in it
# The only class besides tensors and Python's own values: settings of attention-is-all-you-need.
ALLOWED = (argparse.Namespace,)


class SafeShard:
    """A safetensors file; opening it reads the header alone."""

    def __init__(self, path: str | Path):
        self.path = path
        self.file, self.read_so_far = None, 0
        try:
            with safe_open(path, framework="pt") as file:
                headers = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                self.shapes = {name: header.get_shape() for name, header in headers.items()}
                self.types = {name: header.get_dtype() for name, header in headers.items()}
        except SafetensorError as error:
            raise ConversionError(
                f"{path} is truncated or no safetensors file ({error}): fetch it again"
            ) from error

    def names(self) -> list[str]:
        return list(self.shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.shapes[name])

    def nbytes(self, name: str) -> int:
        bits = re.search(r"\d+", self.types[name])  # F32, BF16, I8, F8_E4M3, BOOL
        return prod(self.shapes[name]) * (int(bits[0]) if bits else 8) // 8

    def read(self, name: str) -> torch.Tensor:
        if self.read_so_far + self.nbytes(name) > READ_BEFORE_REOPENING:
            self.close()  # what is large never shares a mapping, which a small tensor would keep
        if self.file is None:
            self.file = safe_open(self.path, framework="pt")
        self.read_so_far += self.nbytes(name)
        return self.file.get_tensor(name)

    def close(self) -> None:
        self.file, self.read_so_far = None, 0


class PickledShard:
    """A dict of tensors from torch.save; they stay on the disk until they are used."""

    def __init__(self, path: str | Path, tensors: dict[str, torch.Tensor] | None = None):
        tensors = read_pickle(path) if tensors is None else tensors
        if not is_state_dict(tensors):
            raise ConversionError(
                f"{path} is no dict of tensors: save model.state_dict() as safetensors"
            )
        self.tensors = tensors

    def names(self) -> list[str]:
        return list(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def nbytes(self, name: str) -> int:
        return self.tensors[name].nbytes

    def read(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def close(self) -> None:
        """Nothing to do: the system takes its pages back when it needs them."""


def is_state_dict(content: object) -> bool:
    return isinstance(content, dict) and all(
        isinstance(name, str) and torch.is_tensor(tensor) for name, tensor in content.items()
    )


def read_pickle(path: str | Path) -> object:
    """What torch.save wrote, as long as it is tensors and plain values; nothing of it runs."""
    if Version(torch.__version__) < Version("2.6"):
        raise ConversionError(
            f"torch {torch.__version__} can be made to run code by {path}: upgrade to 2.6 or later"
        )
    if fault := fault_of_pickle(path):
        raise ConversionError(fault)
    try:
        with torch.serialization.safe_globals(list(ALLOWED)):
            return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except DAMAGE as error:
        raise ConversionError(
            f"{path} is damaged or holds more than plain tensors, which could run code: save it "
            "again as safetensors where you trust it"
        ) from error


# What torch.load raises for a file that it cannot or will not read.
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


Shard = SafeShard | PickledShard


class Checkpoint:
    """The tensors of all shards by name, each read when it is asked for.

    `description` is what the files say about the model besides; `prefix` stands before each name.
    """

    def __init__(self, shards: Iterable[Shard], description: dict | None = None, prefix: str = ""):
        self.places, self.description, self.prefix = {}, description or {}, prefix
        self.last_read = None
        for shard in shards:
            for name in shard.names():
                name = name.removeprefix(prefix)
                if name in self.places:
                    raise ConversionError(f"{name} stands in two shards: fetch the folder again")
                self.places[name] = shard

    def names(self) -> list[str]:
        return sorted(self.places)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.place(name).shape(self.prefix + name)

    def nbytes(self, name: str) -> int:
        return self.place(name).nbytes(self.prefix + name)

    def read(self, name: str) -> torch.Tensor:
        shard = self.place(name)
        if self.last_read not in (None, shard):
            self.last_read.close()
        self.last_read = shard
        return shard.read(self.prefix + name)

    def place(self, name: str) -> Shard:
        if name not in self.places:
            raise ConversionError(f"tensors are missing: {name}; fetch the file again")
        return self.places[name]


def open_file(path: str | Path) -> Checkpoint:
    """The weights in one file, taken out of what training programs put around them."""
    path = Path(path)
    if path.suffix == ".safetensors":
        shard, description = SafeShard(path), {}
    else:
        content = read_pickle(path)
        shard, description = PickledShard(path, weights_in(content)), description_in(content)
    return Checkpoint([shard], description, common_prefix(shard.names()))


def weights_in(content: object) -> object:
    inner = content if isinstance(content, dict) else {}
    found = [inner[key] for key in WEIGHTS if isinstance(inner.get(key), dict)]
    return found[0] if found else content


def description_in(content: object) -> dict[str, object]:
    """The settings that were saved with the weights, as one dict."""
    merged = {}
    for key in DESCRIPTIONS if isinstance(content, dict) else ():
        said = content.get(key)
        said = vars(said) if isinstance(said, ALLOWED) else said
        merged.update(said if isinstance(said, dict) else {})
    return merged


def common_prefix(names: list[str]) -> str:
    """What wrappers around the model have put before every name."""
    prefix = ""
    while added := [w for w in WRAPPERS if names and all(n.startswith(prefix + w) for n in names)]:
        prefix += added[0]
    return prefix


def open_checkpoint(folder: str | Path) -> Checkpoint:
    """The weights in a folder, whichever way they were saved."""
    for file in FILES:
        path = Path(folder) / file
        if path.is_file():
            paths = shard_paths(path) if path.suffix == ".json" else [path]
            is_safe = "safetensors" in file
            return Checkpoint([(SafeShard if is_safe else PickledShard)(path) for path in paths])
    raise ConversionError(f"{folder} holds no weights: one of {', '.join(FILES)} is needed")


def shard_paths(index: Path) -> list[Path]:
    """The files that an index names; they lie beside it and all of them are there."""
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


def read_json(path: str | Path) -> dict:
    try:
        return json_object(path)
    except FileNotFoundError as error:
        raise ConversionError(
            f"{path} is missing: give a folder with config.json, or a file"
        ) from error
    except ValueError as error:
        raise ConversionError(str(error)) from error


def write_checkpoint(folder: Path, tensors: Tensors, shard_bytes: int = SHARD_BYTES) -> None:
    """Writes (name, tensor) pairs as they come; never more than one shard is in memory."""
    shards, shard, size = [], {}, 0
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
    """A contiguous tensor that keeps nothing alive but itself, as safetensors asks."""
    tensor = tensor.detach().contiguous()
    is_part = tensor.untyped_storage().nbytes() != tensor.nbytes
    return tensor.clone() if is_part else tensor


def write_shard(folder: Path, number: int, tensors: dict[str, torch.Tensor]) -> Written:
    path = folder / f"shard-{number}.safetensors"
    for tensor in tensors.values():  # brings in what lies in a file still, many pages at a touch
        tensor.flatten().view(torch.uint8)[::TOUCHED].sum()
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))  # its words for what the system says
        if number is None:
            raise OSError(f"{path} could not be written: {error}") from error
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    return path, {name: tensor.nbytes for name, tensor in tensors.items()}


def name_shards(folder: Path, shards: list[Written]) -> None:
    """Gives the files the names that transformers looks for, now that their number is known."""
    if len(shards) == 1:
        shards[0][0].rename(folder / "model.safetensors")
        return
    weight_map, total = {}, 0
    for number, (path, sizes) in enumerate(shards, start=1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        path.rename(folder / name)
        weight_map.update(dict.fromkeys(sizes, name))
        total += sum(sizes.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
