"""hf_tformer: transformers written from scratch that the Hugging Face ecosystem cannot tell from
its own.

Importing the package is cheap: torch and transformers are loaded when a class is first used. Still,
`AutoConfig`, `AutoModel` and the other Auto classes know all families as soon as it is imported.
"""

# ruff: noqa: E402, PTH109, PTH120 (nothing is imported before the current folder is left)

import importlib
import os
import sys

# `python -m hf_tformer` finds modules in the current folder first, and that may be a model folder
# of a stranger. Python imports this file before __main__.py.
ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
if sys.argv[0] == "-m" and os.getcwd() != ROOT:
    sys.path[:] = [place for place in sys.path if os.path.realpath(place) != os.getcwd()]

from .families import FAMILIES
from .registration import register_when_needed

__version__ = "1.0.0"

# public name → module that defines it
NAMES = {
    name: f"model.{module}"
    for family in FAMILIES.values()
    for name, module in family.modules.items()
} | {
    "attention_maps": "view",
    "check": "checking",
    "last_complete_checkpoint": "training",
    "noam_learning_rate": "training",
    "paper_training_arguments": "training",
    "publish": "publishing",
    "refresh": "refreshing",
}
__all__ = sorted(NAMES)


def __getattr__(name: str) -> object:
    if name == "fast":  # a room that is public itself
        return importlib.import_module(".fast", __name__)
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{NAMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})


register_when_needed()
