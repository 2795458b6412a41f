"""Types that all of conversion names: the two sides' configurations, and tensors by name."""

from collections.abc import Iterable
from types import SimpleNamespace

import torch
from transformers import PreTrainedConfig

Fields = dict[str, object]  # of a configuration
Config = PreTrainedConfig | SimpleNamespace  # of a library, or of a plain layout
State = dict[str, torch.Tensor]  # tensors by name
Batch = dict[str, torch.Tensor]  # arguments of a model
NamedTensors = Iterable[tuple[str, torch.Tensor]]  # one by one
