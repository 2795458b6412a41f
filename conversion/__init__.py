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

from .engine.errors import ConversionError
from .engine.exporting import export_checkpoint
from .engine.importing import import_checkpoint
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

# Documented names that have moved, and where they are now. The old spellings work in 0.1.
MOVED = {
    "formats": "engine.format",
    "llama": "formats.shared",
    "llama.ALL_OF_THEM": "formats.shared.LLAMA_FIXED_ANY_WINDOW",
    "llama.LIKE_LLAMA": "formats.shared.LLAMA_FIXED",
    "llama.RULES": "formats.shared.LLAMA_RULES",
    "llama.SAME_FIELDS": "formats.shared.LLAMA_FIELDS",
    "registry": "engine.registry",
    "rules": "engine.rules",
    "rules.Side": "engine.rules.SavedTensors",
    "transforms": "engine.transforms",
}


def names_of(old: str) -> Callable[[str], object]:
    """Return a module's `__getattr__` that finds its names where they are now, with a warning."""

    def find(name: str) -> object:
        if name.startswith("__"):  # inspect asks every module for its __file__
            raise AttributeError(name)
        new = MOVED.get(f"{old}.{name}", f"{MOVED[old]}.{name}")
        module, _, new_name = f"{__name__}.{new}".rpartition(".")
        value = getattr(import_module(module), new_name)
        warnings.warn(
            f"{__name__}.{old}.{name} has moved and will be removed: "
            f"import {new_name} from {module}",
            FutureWarning,
            stacklevel=2,
        )
        return value

    return find


for old in ("formats", "llama", "registry", "rules", "transforms"):
    module = sys.modules.setdefault(f"{__name__}.{old}", ModuleType(f"{__name__}.{old}"))
    module.__getattr__ = names_of(old)  # type: ignore[method-assign]
    globals()[old] = module
