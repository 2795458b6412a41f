"""Conversion between hf_tformer, the formats of transformers and other runtimes, proven by logits.

    from conversion import import_checkpoint, export_checkpoint
    import_checkpoint("Qwen3-0.6B", "mine")
    export_checkpoint("mine", "back", to="qwen3")
    export_checkpoint("mine", "for-onnx", to="onnx")

The same as a command: `tformer convert import Qwen3-0.6B mine`.
"""

from .engine.errors import ConversionError
from .engine.exporting import export_checkpoint
from .engine.importing import import_checkpoint
from .engine.proof import verify
from .engine.rules import Rule
from .moved import add_moved_modules
from .runtimes.opening import open_exported

__all__ = [
    "ConversionError",
    "Rule",
    "export_checkpoint",
    "import_checkpoint",
    "open_exported",
    "verify",
]

add_moved_modules()
