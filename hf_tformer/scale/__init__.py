"""Training on many processes: which rows, in which layout, how fast, and nothing lost.

checkpoints.py         saves a run and reads it in any layout; checkpoint_folders.py: its folders
state.py               model and optimizer by names; whole_files.py: sizes and checksums
saved_folder.py        the end of a run, as an ordinary folder
together.py            what all processes do together
"""

from .checkpoint_folders import CheckpointError
from .checkpoints import CheckpointWriter, last_checkpoint, load_checkpoint, save_checkpoint
from .saved_folder import gathered_model, save_folder

__all__ = [
    "CheckpointError",
    "CheckpointWriter",
    "gathered_model",
    "last_checkpoint",
    "load_checkpoint",
    "save_checkpoint",
    "save_folder",
]
