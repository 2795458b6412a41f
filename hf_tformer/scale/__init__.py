"""Training on many processes: which rows, in which layout, how fast, and nothing lost.

loop.py                the training; step.py: what one step does to a model
order.py               which rows a step takes
tokens.py              rows of token shards; preparing.py: writes them; stream.py: of what arrives
layout.py              how processes hold a model; launching.py: what `accelerate launch` says of it
meter.py               tokens per second, utilisation, memory
checkpoints.py         saves a run and reads it in any layout; checkpoint_folders.py: its folders
state.py               model and optimizer by names; whole_files.py: sizes and checksums
saved_folder.py        the end of a run, as an ordinary folder
together.py            what all processes do together
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
