"""Types that all of conversion names: the two sides' configurations, and tensors by name."""

import os
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch
from transformers import PreTrainedConfig

Fields = dict[str, Any]  # of a configuration
Config = PreTrainedConfig | SimpleNamespace  # of a library, or of a plain layout
State = dict[str, torch.Tensor]  # tensors by name
Batch = dict[str, torch.Tensor]  # arguments of a model
NamedTensors = Iterable[tuple[str, torch.Tensor]]  # one by one
FilePath = str | os.PathLike[str]
