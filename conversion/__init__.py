"""Conversion between hf_tformer and the formats of transformers, proven by equal logits.

    from conversion import import_checkpoint, export_checkpoint
    import_checkpoint("Qwen3-0.6B", "mine")
    export_checkpoint("mine", "back", to="qwen3")

The same as a command: `tformer convert import Qwen3-0.6B mine`.
"""

from .convert import export_checkpoint, import_checkpoint
from .proof import verify
from .rules import ConversionError, Rule

__all__ = ["ConversionError", "Rule", "export_checkpoint", "import_checkpoint", "verify"]
