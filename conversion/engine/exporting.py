"""Export a folder of ours to another format, or for a runtime."""

import torch

from ..runtimes.export import Export
from ..runtimes.exporting import export_to_runtime
from ..runtimes.registry import RUNTIMES
from .aliases import FilePath
from .convert import transfer
from .errors import ConversionError
from .importing import as_dtype
from .nearest import no_format
from .refused import REFUSED
from .registry import FORMATS, format_for
from .request import Conversion, Request


def export_checkpoint(
    src: FilePath,
    dst: FilePath,
    to: str,
    dtype: str | torch.dtype | None = None,
    verify: bool = True,
    tokenizer: FilePath | None = None,
    progress: bool = False,
) -> Conversion | Export:
    """Make the folder `dst`, for the format or the runtime `to`, from the folder `src` of ours."""
    if to in RUNTIMES:
        return export_to_runtime(src, dst, to, dtype, verify, tokenizer)
    if to not in FORMATS and to not in REFUSED:
        raise ConversionError(no_format(to, [*FORMATS, *RUNTIMES]))
    return transfer(
        Request(
            src,
            dst,
            format_for(src, to),
            direction="export",
            dtype=as_dtype(dtype),
            verify=verify,
            tokenizer=tokenizer,
            progress=progress,
        )
    )
