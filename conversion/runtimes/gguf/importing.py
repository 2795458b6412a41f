"""Import a GGUF file: the model that it describes, its weights unpacked, and its tokenizer."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_tformer.path_safety import fault_of_file

from ...engine.aliases import Fields, FilePath
from ...engine.checkpoints import Checkpoint
from ...engine.convert import transfer
from ...engine.errors import ConversionError
from ...engine.foreign import ending_of, is_readable
from ...engine.format import Format
from ...engine.models import Library
from ...engine.request import Conversion, Request
from ...engine.rules import SavedTensors
from .describing import POOLING, Described, describe
from .file import GgufFile, damage
from .proving import prove
from .reading_tokenizer import read_tokenizer
from .tensors import layout_of, names_in_llama_cpp

# Tensors that are computed from the configuration, or that no graph reads.
COUNTED = ("rope_freqs.weight", "dec.blk.0.cross_attn_rel_b.weight")
POOLINGS = {1: "mean", 2: "cls", 3: "last token"}  # llama.cpp's numbers


class GgufShard:
    """The tensors of a file by the names of transformers, and in its layout."""

    def __init__(self, file: GgufFile, model: Described) -> None:
        self.file, self.model = file, model
        named_there = names_in_llama_cpp(model.architecture, model.ours)
        theirs = SavedTensors.of(model.format.theirs.build(model.theirs))
        named = {name: named_there(name) for name in theirs.shapes}
        found = ((name, there) for name, there in named.items() if there in file.packed)
        self.places = {name: there for name, there in found if there}
        known = {*self.places.values(), *COUNTED}
        if model.ours.tie_word_embeddings:
            known.add("output.weight")
        if unknown := sorted(file.packed.keys() - known):
            raise ConversionError(
                f"{unknown[0]} in {file.path} has no place in {model.format.name}, whose tensors "
                f"the others are: this model cannot be expressed"
            )

    def names(self) -> list[str]:
        return list(self.places)

    def shape(self, name: str) -> tuple[int, ...]:
        stored = torch.empty(self.file.shape(self.places[name]), device="meta")
        return tuple(self.in_layout(name, stored).shape)

    def nbytes(self, name: str) -> int:
        return self.file.nbytes(self.places[name])

    def read(self, name: str) -> torch.Tensor:
        tensor = self.in_layout(name, self.file.read(self.places[name]))
        return tensor.to(self.model.ours.dtype)

    def in_layout(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        layout = layout_of(name, self.model.architecture)
        return layout.forward((tensor,), self.model.ours)[0]

    def close(self) -> None:
        """Do nothing: the system reclaims the pages when it needs them."""


@dataclass(frozen=True, kw_only=True)
class GgufLibrary(Library):
    """The side of transformers, with the weights of a GGUF file."""

    shard: GgufShard
    named: Library  # by the format, which has its own way to make some models

    def make_config(self, fields: Fields, dtype: torch.dtype | None) -> PreTrainedConfig:
        return self.named.make_config(fields, dtype)

    def build(self, config: PreTrainedConfig) -> PreTrainedModel:
        return self.named.build(config)

    def load_config(self, folder: FilePath, settings: Fields | None = None) -> PreTrainedConfig:
        return self.shard.model.theirs

    def checkpoint(self, folder: FilePath) -> Checkpoint:
        return Checkpoint([self.shard])

    def open(self, folder: FilePath | None, **source: object) -> tuple[PreTrainedModel, Fields]:
        theirs = self.shard.model.theirs
        shapes = SavedTensors.of(self.build(theirs)).shapes
        for name, there in self.shard.places.items():
            if (shape := self.shard.shape(name)) != shapes[name]:
                raise ConversionError(
                    f"{there} in {self.shard.file.path} has the shape {list(shape)}, where its "
                    f"fields ask for {list(shapes[name])}: fetch it again"
                )
        state = {name: self.shard.read(name).float() for name in self.shard.names()}
        again = type(theirs).from_dict(theirs.to_dict())  # as from a folder: T5's says it is tied
        return super().open(None, config=again, state_dict=state)


@dataclass(frozen=True, kw_only=True)
class GgufFormat(Format):
    """The format of the model in a file."""

    side: GgufLibrary

    @property
    def theirs(self) -> Library:
        return self.side


def gguf_file(src: FilePath) -> Path | None:
    """Return the GGUF file that a source is, or the only one that a folder holds."""
    path = Path(src)
    if path.is_dir() and not is_readable(path):
        files = sorted(path.glob("*.gguf"))
        if len(files) > 1:
            raise ConversionError(
                f"{src} holds {len(files)} GGUF files: choose one, such as {files[0]}"
            )
        if files and (fault := fault_of_file(files[0], path)):
            raise ConversionError(fault)
        path = files[0] if files else path
    return path if path.is_file() and ending_of(path) == ".gguf" else None


def import_gguf(
    path: Path,
    dst: FilePath,
    dtype: torch.dtype | None = None,
    verify: bool = True,
    tokenizer: PreTrainedTokenizerBase | FilePath | None = None,
    progress: bool = False,
) -> Conversion:
    """Make the folder `dst` of ours from a file; with llama.cpp installed, it is asked as well."""
    file = GgufFile(path)
    with damage(path):
        format = read_format(file)
        if tokenizer is None:
            tokenizer = read_tokenizer(file)
    given = tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else None
    read_by = prove(file, format.theirs, format.side.shard.model.ours, given) if verify else ""
    request = Request(
        path, dst, format, "import", dtype, verify, tokenizer=tokenizer, progress=progress
    )
    done = transfer(request)
    return replace(done, read_by=read_by, left_out=(*done.left_out, *pooling(file)))


def pooling(file: GgufFile) -> Iterator[str]:
    """Yield a sentence on how a text becomes one vector, which no model folder holds."""
    if (kind := file.described().get(POOLING, 0)) in POOLINGS:
        yield (
            f"{file.architecture}.{POOLING} {kind}: programs make one vector of a text by its "
            f"{POOLINGS[kind]}, as sentence-transformers does with a Pooling beside this folder"
        )


def read_format(file: GgufFile) -> GgufFormat:
    """Return the format of a file, which reads its weights."""
    model = describe(file)
    theirs = {f.name: getattr(model.format.theirs, f.name) for f in fields(Library)}
    side = GgufLibrary(**theirs, shard=GgufShard(file, model), named=model.format.theirs)
    own = {f.name: getattr(model.format, f.name) for f in fields(Format)}
    return GgufFormat(**own, side=side)
