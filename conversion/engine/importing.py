"""Import a folder or file of another format into a folder of ours."""

import torch

from ..runtimes.gguf.importing import gguf_file, import_gguf
from .aliases import Fields, FilePath
from .convert import transfer
from .errors import ConversionError
from .registry import detect, refuse_unreadable
from .request import Conversion, Request
from .user_rules import read_rules

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def import_checkpoint(
    src: FilePath,
    dst: FilePath,
    format: str | None = None,
    dtype: str | torch.dtype | None = None,
    verify: bool = True,
    tokenizer: FilePath | None = None,
    progress: bool = False,
    *,
    settings: Fields | None = None,
    rules: FilePath | None = None,
) -> Conversion:
    """Make the folder `dst` of ours from `src`, a folder or file of another format, or of GGUF.

    `tokenizer` (a folder, a tokenizer.json, a repository on the Hub) replaces the one in `src`.
    `progress` shows a bar if stderr is a terminal. `settings` are values that a plain file lacks,
    by their names there: {"n_heads": 12}. `rules` is a Python file that describes the user's own
    layout.
    """
    if rules and (format or settings):
        raise ConversionError(
            "rules describe all of a file: give no format and no settings with them"
        )
    if path := gguf_file(src):
        if rules or format or settings:
            raise ConversionError(f"{path} says what it holds: give no format and no settings")
        return import_gguf(path, dst, as_dtype(dtype), verify, tokenizer, progress)
    refuse_unreadable(src)
    chosen = read_rules(rules, verify) if rules else detect(src, format)
    return transfer(
        Request(
            src,
            dst,
            chosen,
            direction="import",
            dtype=as_dtype(dtype),
            verify=verify,
            tokenizer=tokenizer,
            progress=progress,
            settings=settings,
        )
    )


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConversionError(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}")
    return DTYPES[dtype]
