"""Conversion between hf_tformer, the formats of transformers and other runtimes, proven by logits.

    from conversion import import_checkpoint, export_checkpoint
    import_checkpoint("Qwen3-0.6B", "mine")
    export_checkpoint("mine", "back", to="qwen3")
    export_checkpoint("mine", "for-onnx", to="onnx")

The same as a command: `tformer convert import Qwen3-0.6B mine`.
"""

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from .engine.convert import import_checkpoint
from .engine.errors import ConversionError
from .engine.exporting import export_checkpoint
from .engine.proof import verify
from .engine.rules import Rule
from .runtimes.opening import open_exported

__all__ = [
    "ConversionError",
    "Rule",
    "export_checkpoint",
    "import_checkpoint",
    "open_exported",
    "verify",
]

# Documented modules that have moved, and where their names are now. The old spellings work in 0.1.
MOVED = {
    "formats": "engine.format",
    "llama": "formats.decoders.llama",
    "registry": "engine.registry",
    "rules": "engine.rules",
    "transforms": "engine.transforms",
}


def names_of(old: str, new: str) -> Callable[[str], object]:
    """Return a module's `__getattr__` that finds the names of `old` in `new`, with a warning."""

    def find(name: str) -> object:
        if name.startswith("__"):  # inspect asks every module for its __file__
            raise AttributeError(name)
        value = getattr(import_module(f"{__name__}.{new}"), name)
        warnings.warn(
            f"{__name__}.{old}.{name} has moved and will be removed: "
            f"import it from {__name__}.{new}",
            FutureWarning,
            stacklevel=2,
        )
        return value

    return find


for old, new in MOVED.items():
    module = sys.modules.setdefault(f"{__name__}.{old}", ModuleType(f"{__name__}.{old}"))
    module.__getattr__ = names_of(old, new)
    globals()[old] = module
