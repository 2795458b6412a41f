"""Export a folder of ours to the files of a runtime, proven there, completely or not at all."""

import contextlib
import ctypes
import gc
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedConfig

from ..engine.aliases import FilePath
from ..engine.decoder_heads import HEADS, our_prefix
from ..engine.destination import appearing
from ..engine.errors import ConversionError
from ..engine.format import DECODERS
from ..engine.heads import architecture_of
from ..engine.models import Library
from ..engine.registry import our_model_type, our_side, refuse_unreadable
from ..engine.side_files import SideFiles, first_line
from .card import write_card
from .export import Export
from .proof import ask, prove, with_few_bits
from .registry import RUNTIMES
from .runtime import Runtime, Source


def export_to_runtime(
    src: FilePath,
    dst: FilePath,
    to: str,
    dtype: str | torch.dtype | None = None,
    verify: bool = True,
    tokenizer: FilePath | None = None,
) -> Export:
    """Make the folder `dst`, which the runtime `to` opens, from the folder `src` of ours."""
    runtime = RUNTIMES[to]
    dtype = runtime.checked_dtype(dtype)
    refuse_unreadable(src)
    library = library_of(src)
    config = library.load_config(src)
    model = library.build(config)  # without weights
    side_files = SideFiles(src, model, tokenizer)
    source = Source(Path(src), library, config, dtype, side_files.tokenizer)
    runtime.refuse(source)
    runtime.refuse_missing_packages()
    began = time.perf_counter()
    size = sum(parameter.numel() for parameter in model.parameters()) * 4
    with appearing(dst, src, size) as folder:
        save_config(config, folder)
        disagreements = tuple(side_files.save(folder))
        answers = ask(source, runtime) if verify else None
        give_back_memory()
        with in_a_sentence("cannot be made from this model", runtime):
            runtime.write(source, folder)
        give_back_memory()
        proof = None
        if answers is not None:
            with in_a_sentence("were made, but do not run", runtime):
                running = runtime.open(source, folder)
                proof = prove(answers, running, runtime, source)
            del running
        with in_a_sentence("cannot be packed in few bits", runtime):
            is_packed = runtime.pack(source, folder)
            if is_packed and proof is not None and answers is not None:
                proof = with_few_bits(proof, answers, runtime.open(source, folder))
        seconds = time.perf_counter() - began
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        done = Export(Path(dst), runtime, dtype, size, seconds, proof, disagreements)
        write_card(folder, source, done)
    return done


def give_back_memory() -> None:
    """Free graphs and models, which refer to each other, and the memory that glibc keeps."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another system, or another libc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@contextlib.contextmanager
def in_a_sentence(what: str, runtime: Runtime) -> Iterator[None]:
    """Turn the many errors of exporters and runtimes into one sentence."""
    try:
        yield
    except (ConversionError, OSError):
        raise
    except Exception as error:
        raise ConversionError(
            f"files for {runtime.title} {what} ({first_line(error)}): nothing is kept; please "
            "report this configuration"
        ) from error


def library_of(folder: FilePath) -> Library:
    """Return the side that reads a folder of ours, with the head that it names."""
    library = our_side(folder, our_model_type(folder))
    family = next((one for one in DECODERS if one.config_name == library.config_name), None)
    if family is None:
        return library
    heads = (our_prefix(family) + end for end in HEADS)
    name = architecture_of(folder, (family.model_name, *heads))
    if name == family.model_name:
        return library
    return replace(library, model_name=name, is_encoder=True)  # it is called like an encoder


def save_config(config: PreTrainedConfig, folder: Path) -> None:
    """Write config.json without auto_map, as nothing there runs the code."""
    fields = config.to_diff_dict()
    fields.pop("auto_map", None)
    text = json.dumps(fields, indent=2, sort_keys=True)
    (folder / "config.json").write_text(f"{text}\n", encoding="utf-8")
