"""Conversion between hf_tformer, the formats of transformers and other runtimes, proven by logits.

    from conversion import import_checkpoint, export_checkpoint
    import_checkpoint("Qwen3-0.6B", "mine")
    export_checkpoint("mine", "back", to="qwen3")
    export_checkpoint("mine", "for-onnx", to="onnx")

The same as a command: `tformer convert import Qwen3-0.6B mine`.
"""

# ruff: noqa: E402, PTH109, PTH120 (nothing is imported before the current folder is left)

import os
import sys

# `python -m conversion` finds modules in the current folder first: see hf_tformer/__init__.py.
ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
if sys.argv[0] == "-m" and os.getcwd() != ROOT:
    sys.path[:] = [place for place in sys.path if os.path.realpath(place) != os.getcwd()]

from .engine.errors import ConversionError
from .engine.exporting import export_checkpoint
from .engine.importing import import_checkpoint
from .engine.proof import verify
from .engine.rules import Rule
from .proving.comparison import prove
from .rehoming.rehome import rehome
from .runtimes.opening import open_exported

__all__ = [
    "ConversionError",
    "Rule",
    "export_checkpoint",
    "import_checkpoint",
    "open_exported",
    "prove",
    "rehome",
    "verify",
]
