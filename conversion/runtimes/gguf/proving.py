"""Prove that a GGUF file was read rightly: llama.cpp has the same token ids, and the same logits.

It rounds the inputs of products with packed weights, which changes answers more than a small fault
would. So it is given the numbers that were unpacked, in a file of float32.
"""

import contextlib
import tempfile
from collections.abc import Container
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ...engine.aliases import Config
from ...engine.errors import ConversionError
from ...engine.models import Library
from ...engine.proof import finite_logits, padded_batch
from ..runtime import Source
from .file import GgufFile
from .running import LlamaCpp
from .runtime import Gguf, refuse_other_ids

OF_THE_FILE = ("GGUF.", "general.architecture")  # fields that every writer has itself


def prove(
    file: GgufFile, side: Library, ours: Config, tokenizer: PreTrainedTokenizerBase | None
) -> str:
    """Return a sentence on what llama.cpp computes from a file, "" where it is not installed."""
    if find_spec("cyllama") is None:
        return ""
    loaded = replace(side.load(file.path), types=0)  # llama.cpp has one kind of segment
    source = Source(file.path, side, ours, "float32", tokenizer)
    batch = padded_batch(loaded)
    expected = finite_logits(loaded, batch, file.path)
    del loaded  # before llama.cpp reads it
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "model.gguf"
        write_unpacked(file, unpacked)
        running = LlamaCpp(unpacked, source)
        if tokenizer is not None:
            refuse_other_ids(tokenizer, running)
        actual = running.logits(batch)
    difference = float((actual - expected).abs().max())
    limit = Gguf().tolerance_for(source) * float(expected.abs().max())
    if not difference <= limit:  # in this order, so that NaN is refused as well
        raise ConversionError(
            f"llama.cpp computes other {side.answers} from {file.path}: they differ by "
            f"{difference:.1e}, more than rounding explains ({limit:.1e}); nothing is kept, please "
            "report this file"
        )
    same = "" if tokenizer is None else "token ids and "
    return f"llama.cpp computes the same {same}{side.answers} from it, up to {difference:.1e}"


def write_unpacked(file: GgufFile, path: Path) -> None:
    """Write the same file with every tensor in float32, one tensor at a time."""
    import gguf

    kind = gguf.GGMLQuantizationType.F32
    with contextlib.closing(gguf.GGUFWriter(path, file.architecture)) as writer:
        copy_fields(file, writer)
        for name in file.packed:
            shape = torch.Size(file.shape(name))
            writer.add_tensor_info(name, shape, float, 4 * shape.numel(), kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name in file.packed:
            writer.write_tensor_data(file.read(name).float().contiguous().numpy())


def copy_fields(file: GgufFile, writer: Any, but: Container[str] = ()) -> None:
    """Write the fields of a file into another one, which has written its architecture."""
    for name, field in file.stored.items():
        if not name.startswith(OF_THE_FILE) and name not in but:
            kind, *inner = field.types  # of a list, and of what is in it
            writer.add_key_value(name, field.contents(), kind, *inner[-1:])
