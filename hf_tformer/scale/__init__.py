"""Train on many processes, in any layout, with checkpoints that any other layout can load.

loop.py                the training loop; step.py: one step
order.py               the rows of each step
tokens.py              rows of token shards; preparing.py: writes them; stream.py: rows of a stream
layout.py              how processes hold a model; launching.py: settings of `accelerate launch`
meter.py               tokens per second, utilisation, memory
checkpoints.py         saves and loads checkpoints; checkpoint_folders.py: their folders
state.py               model and optimizer by names; whole_files.py: sizes and checksums
saved_folder.py        saves the trained model as an ordinary folder
pipeline.py            stages of a model
together.py            runs work in all processes
"""

from .checkpoint_folders import CheckpointError
from .checkpoints import CheckpointWriter, last_checkpoint, load_checkpoint, save_checkpoint
from .errors import TrainingError
from .launching import Launch, process_rank, read_launch
from .layout import Layout, choose_device, choose_layout, joined_processes
from .loop import compile_layers, rows_of_each, train
from .meter import Meter
from .order import RowOrder
from .preparing import write_tokens
from .saved_folder import save_folder
from .step import Settings
from .stream import StreamedRows
from .tokens import TokenRows, TokensError, collate_rows

__all__ = [
    "CheckpointError",
    "CheckpointWriter",
    "Launch",
    "Layout",
    "Meter",
    "RowOrder",
    "Settings",
    "StreamedRows",
    "TokenRows",
    "TokensError",
    "TrainingError",
    "choose_device",
    "choose_layout",
    "collate_rows",
    "compile_layers",
    "joined_processes",
    "last_checkpoint",
    "load_checkpoint",
    "process_rank",
    "read_launch",
    "rows_of_each",
    "save_checkpoint",
    "save_folder",
    "train",
    "write_tokens",
]
