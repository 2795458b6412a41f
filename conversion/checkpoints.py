"""Reading checkpoints lazily and without running anything; writing them one shard at a time."""

import argparse
import contextlib
import json
import pickle
import shutil
import uuid
from pathlib import Path

import torch
from packaging.version import Version
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .rules import ConversionError

SHARD_BYTES = 2 * 10**9
INDEX = "model.safetensors.index.json"
# In this order: what needs no pickle comes first.
FILES = (INDEX, "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin")

# Where training programs put the weights, and what they know about them, in the dict they save.
WEIGHTS = ("model", "state_dict", "model_state_dict")
DESCRIPTIONS = ("config", "settings", "model_args")  # the last one is the most trusted
# Added to each name by torch.compile and by DistributedDataParallel.
WRAPPERS = ("_orig_mod.", "module.")
# The only class besides tensors and Python's own values: settings of attention-is-all-you-need.
ALLOWED = (argparse.Namespace,)


class SafeShard:
    """A safetensors file; opening it reads the header alone."""

    def __init__(self, path):
        self.path = path
        try:
            with safe_open(path, framework="pt") as file:
                self.shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ConversionError(
                f"{path} is truncated or no safetensors file ({error}): fetch it again"
            ) from error

    def names(self):
        return list(self.shapes)

    def shape(self, name):
        return tuple(self.shapes[name])

    def read(self, name):
        # Opened anew: what has been read of a file stays in memory for as long as it is open.
        with safe_open(self.path, framework="pt") as file:
            return file.get_tensor(name)


class PickledShard:
    """A dict of tensors from torch.save; they stay on the disk until they are used."""

    def __init__(self, path, tensors=None):
        tensors = read_pickle(path) if tensors is None else tensors
        if not is_state_dict(tensors):
            raise ConversionError(
                f"{path} is no dict of tensors: save model.state_dict() as safetensors"
            )
        self.tensors = tensors

    def names(self):
        return list(self.tensors)

    def shape(self, name):
        return tuple(self.tensors[name].shape)

    def read(self, name):
        return self.tensors[name]


def is_state_dict(content):
    return isinstance(content, dict) and all(
        isinstance(name, str) and torch.is_tensor(tensor) for name, tensor in content.items()
    )


def read_pickle(path):
    """What torch.save wrote, as long as it is tensors and plain values; nothing of it runs."""
    if Version(torch.__version__) < Version("2.6"):
        raise ConversionError(
            f"torch {torch.__version__} can be made to run code by {path}: upgrade to 2.6 or later"
        )
    try:
        with torch.serialization.safe_globals(list(ALLOWED)):
            return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except DAMAGE as error:
        raise ConversionError(
            f"{path} is damaged, older than torch 1.6 or holds more than plain tensors, which "
            "could run code: save it again as safetensors where you trust it"
        ) from error


# What torch.load raises for a file that it cannot or will not read.
DAMAGE = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
)


class Checkpoint:
    """The tensors of all shards by name, each read when it is asked for.

    `description` is what the files say about the model besides; `prefix` stands before each name.
    """

    def __init__(self, shards, description=None, prefix=""):
        self.places, self.description, self.prefix = {}, description or {}, prefix
        for shard in shards:
            for name in shard.names():
                name = name.removeprefix(prefix)
                if name in self.places:
                    raise ConversionError(f"{name} stands in two shards: fetch the folder again")
                self.places[name] = shard

    def names(self):
        return sorted(self.places)

    def shape(self, name):
        return self.place(name).shape(self.prefix + name)

    def read(self, name):
        return self.place(name).read(self.prefix + name)

    def place(self, name):
        if name not in self.places:
            raise ConversionError(f"tensors are missing: {name}; fetch the file again")
        return self.places[name]


def open_file(path):
    """The weights in one file, taken out of what training programs put around them."""
    path = Path(path)
    if path.suffix == ".safetensors":
        shard, description = SafeShard(path), {}
    else:
        content = read_pickle(path)
        shard, description = PickledShard(path, weights_in(content)), description_in(content)
    return Checkpoint([shard], description, common_prefix(shard.names()))


def weights_in(content):
    inner = content if isinstance(content, dict) else {}
    found = [inner[key] for key in WEIGHTS if isinstance(inner.get(key), dict)]
    return found[0] if found else content


def description_in(content):
    """The settings that were saved with the weights, as one dict."""
    merged = {}
    for key in DESCRIPTIONS if isinstance(content, dict) else ():
        said = content.get(key)
        said = vars(said) if isinstance(said, ALLOWED) else said
        merged.update(said if isinstance(said, dict) else {})
    return merged


def common_prefix(names):
    """What wrappers around the model have put before every name."""
    prefix = ""
    while added := [w for w in WRAPPERS if names and all(n.startswith(prefix + w) for n in names)]:
        prefix += added[0]
    return prefix


def open_checkpoint(folder):
    """The weights in a folder, whichever way they were saved."""
    for file in FILES:
        path = Path(folder) / file
        if path.is_file():
            paths = shard_paths(path) if path.suffix == ".json" else [path]
            is_safe = "safetensors" in file
            return Checkpoint([(SafeShard if is_safe else PickledShard)(path) for path in paths])
    raise ConversionError(f"{folder} holds no weights: one of {', '.join(FILES)} is needed")


def shard_paths(index):
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
        paths.append(path)
    return paths


def read_json(path):
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConversionError(
            f"{path} is missing: give a folder with config.json, or a file"
        ) from error
    except ValueError as error:
        raise ConversionError(f"{path} is not valid JSON ({error}): fetch it again") from error
    if not isinstance(content, dict):
        raise ConversionError(f"{path} holds no JSON object: fetch it again")
    return content


def write_checkpoint(folder, tensors, shard_bytes=SHARD_BYTES):
    """Writes (name, tensor) pairs as they come; never more than one shard is in memory."""
    shards, shard, size = [], {}, 0
    for name, tensor in tensors:
        if shard and size + tensor.nbytes > shard_bytes:
            shards.append(write_shard(folder, len(shards), shard))
            shard, size = {}, 0
        shard[name] = own_memory(tensor)
        size += tensor.nbytes
    shards.append(write_shard(folder, len(shards), shard))
    name_shards(folder, shards)


def own_memory(tensor):
    """A contiguous tensor that keeps nothing alive but itself, as safetensors asks."""
    tensor = tensor.detach().contiguous()
    is_part = tensor.untyped_storage().nbytes() != tensor.nbytes
    return tensor.clone() if is_part else tensor


def write_shard(folder, number, tensors):
    path = folder / f"shard-{number}.safetensors"
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error
    return path, {name: tensor.nbytes for name, tensor in tensors.items()}


def name_shards(folder, shards):
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


@contextlib.contextmanager
def appearing(folder):
    """A folder beside `folder` to write into, which takes its name if nothing fails."""
    folder = Path(folder).absolute()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConversionError(f"{folder} exists: choose another name, or remove it first")
    partial = folder.parent / f".{folder.name}-{uuid.uuid4().hex[:8]}.partial"
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
