"""Conversion between hf_tformer, the formats of transformers and other runtimes, proven by logits.

    from conversion import import_checkpoint, export_checkpoint
    import_checkpoint("Qwen3-0.6B", "mine")
    export_checkpoint("mine", "back", to="qwen3")
    export_checkpoint("mine", "for-onnx", to="onnx")

The same as a command: `tformer convert import Qwen3-0.6B mine`.
"""

from .convert import import_checkpoint
from .exporting import export_checkpoint
from .proof import verify
from .rules import ConversionError, Rule
from .runtimes.opening import open_exported

__all__ = [
    "ConversionError",
    "Rule",
    "export_checkpoint",
    "import_checkpoint",
    "open_exported",
    "verify",
]
