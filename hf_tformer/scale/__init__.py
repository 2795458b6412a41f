"""Training on many processes: which rows, in which layout, how fast, and nothing lost.

checkpoints.py         saves a run and reads it in any layout; checkpoint_folders.py: its folders
state.py               model and optimizer by names; whole_files.py: sizes and checksums
together.py            what all processes do together
"""

from .checkpoint_folders import CheckpointError
from .checkpoints import CheckpointWriter, last_checkpoint, load_checkpoint, save_checkpoint

__all__ = [
    "CheckpointError",
    "CheckpointWriter",
    "last_checkpoint",
    "load_checkpoint",
    "save_checkpoint",
]
