"""Prove that a GGUF file was read rightly: llama.cpp has the same token ids, and the same logits.

It rounds the inputs of products with packed weights, which changes answers more than a small fault
would. So it is given the numbers that were unpacked, in a file of float32.
"""

import contextlib
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ...engine.aliases import Config
from ...engine.errors import ConversionError
from ...engine.models import Library
from ..runtime import Source
from .file import GgufFile
from .running import LlamaCpp
from .runtime import TABLE, has_a_table, refuse_other_ids

TOLERANCE = 1e-4  # of the largest logit
LENGTH = 48  # of the sequences that are compared
OF_THE_FILE = "GGUF."  # fields that describe the file itself


def prove(
    file: GgufFile, side: Library, ours: Config, tokenizer: PreTrainedTokenizerBase | None
) -> str:
    """Return a sentence on what llama.cpp computes from a file, "" where it is not installed."""
    if find_spec("cyllama") is None:
        return ""
    loaded = side.load(file.path)
    source = Source(file.path, side, ours, "float32", tokenizer)
    random = torch.Generator().manual_seed(0)
    shape = (2, min(LENGTH, loaded.longest))
    ids = torch.randint(loaded.input_ids, shape, generator=random)
    with torch.no_grad():
        expected = loaded.model(ids).logits.flatten(0, 1)
    del loaded  # before llama.cpp reads it
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "model.gguf"
        write_unpacked(file, unpacked)
        running = LlamaCpp(unpacked, source)
        if tokenizer is not None:
            refuse_other_ids(tokenizer, running)
        actual = running.logits({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    difference = float((actual - expected).abs().max())
    limit = (TABLE if has_a_table(ours) else TOLERANCE) * float(expected.abs().max())
    if not difference <= limit:  # in this order, so that NaN is refused as well
        raise ConversionError(
            f"llama.cpp computes other logits from {file.path}: they differ by {difference:.1e}, "
            f"more than rounding explains ({limit:.1e}); nothing is kept, please report this file"
        )
    same = "logits" if tokenizer is None else "token ids and logits"
    return f"llama.cpp computes the same {same} from it, up to {difference:.1e}"


def write_unpacked(file: GgufFile, path: Path) -> None:
    """Write the same file with every tensor in float32, one tensor at a time."""
    import gguf

    kind = gguf.GGMLQuantizationType.F32
    with contextlib.closing(gguf.GGUFWriter(path, file.architecture)) as writer:
        for name, field in file.stored.items():
            if name.startswith(OF_THE_FILE) or name == "general.architecture":
                continue
            types = [*field.types]
            inner: dict[str, Any] = {"sub_type": types[-1]} if len(types) > 1 else {}
            writer.add_key_value(name, field.contents(), types[0], **inner)
        for name in file.packed:
            shape = file.shape(name)
            writer.add_tensor_info(name, shape, float, 4 * torch.Size(shape).numel(), kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name in file.packed:
            writer.write_tensor_data(file.read(name).float().contiguous().numpy())
