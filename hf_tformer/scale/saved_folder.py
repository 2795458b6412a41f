"""The end of a run: its model as an ordinary folder, whatever the layout."""

import copy
from pathlib import Path

from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from ..atomic_folders import Savable, save_whole
from .checkpoint_folders import CheckpointError
from .together import TogetherError, first_alone, joined_rank

GATHERED = StateDictOptions(full_state_dict=True, cpu_offload=True)


def save_folder(model: nn.Module, folder: str | Path, *parts: Savable) -> None:
    """Saves a model, and `parts` such as its tokenizer, so that `from_pretrained` opens the folder.

    All processes call it. The first one gathers the weights in the memory of its processor and
    writes. A model that is too large for that: `save_pretrained(folder,
    distributed_checkpoint=True)`, then `consolidate_distributed_checkpoint` of transformers.
    """
    folder = Path(folder)
    whole = gathered_model(model)

    def write():
        folder.mkdir(parents=True, exist_ok=True)
        save_whole(folder, whole, *parts)

    try:
        first_alone(write)
    except TogetherError as error:
        raise CheckpointError(
            f"the model was not saved in {folder} ({error}): make room there or choose another "
            "folder"
        ) from error


def gathered_model(model: nn.Module) -> PreTrainedModel | None:
    """A model with all weights of a sharded one, for the first process; None for the others."""
    weights = get_model_state_dict(model, options=GATHERED)
    if joined_rank() != 0:
        return None
    original = model.module if isinstance(model, DistributedDataParallel) else model
    config = copy.deepcopy(original.config)
    config.distributed_config = None
    whole = type(original).from_pretrained(
        None, config=config, state_dict=weights, dtype=original.dtype
    )
    if original.can_generate():
        whole.generation_config = original.generation_config
    return whole
