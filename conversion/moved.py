"""Old names of modules, which can still be imported, with a warning."""

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

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
        module, _, new_name = f"{__package__}.{new}".rpartition(".")
        value = getattr(import_module(module), new_name)
        warnings.warn(
            f"{__package__}.{old}.{name} has moved and will be removed: "
            f"import {new_name} from {module}",
            FutureWarning,
            stacklevel=2,
        )
        return value

    return find


def add_moved_modules() -> None:
    """Make the old modules importable; each finds its names where they are now."""
    for old in ("formats", "llama", "registry", "rules", "transforms"):
        name = f"{__package__}.{old}"
        module = sys.modules.setdefault(name, ModuleType(name))
        module.__getattr__ = names_of(old)  # type: ignore[method-assign]
        setattr(sys.modules[__package__], old, module)
