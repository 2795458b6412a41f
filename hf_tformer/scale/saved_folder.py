"""Save the model of a run in any layout as an ordinary folder."""

import copy
from pathlib import Path

from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from ..atomic_folders import Savable, save_whole
from .checkpoint_folders import CheckpointError
from .together import TogetherError, first_alone, joined_rank

GATHERED = StateDictOptions(full_state_dict=True, cpu_offload=True)


def save_folder(
    model: PreTrainedModel | DistributedDataParallel, folder: str | Path, *parts: Savable
) -> None:
    """Save a model, and `parts` such as its tokenizer, so that `from_pretrained` opens the folder.

    All processes call it. The first one gathers the weights in the memory of its processor and
    writes. Save a model that is too large for that with `save_pretrained(folder,
    distributed_checkpoint=True)`, then `consolidate_distributed_checkpoint` of transformers.
    """
    folder = Path(folder)
    whole = gathered_model(model)

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if whole is not None:
            save_whole(folder, whole, *parts)

    try:
        first_alone(write)
    except TogetherError as error:
        raise CheckpointError(
            f"the model was not saved in {folder} ({error}): make room there or choose another "
            "folder"
        ) from error


def gathered_model(model: PreTrainedModel | DistributedDataParallel) -> PreTrainedModel | None:
    """Gather the weights of a sharded model in the first process; return None in the others."""
    weights = get_model_state_dict(model, options=GATHERED)
    if joined_rank() != 0:
        return None
    original: PreTrainedModel = (
        model.module if isinstance(model, DistributedDataParallel) else model
    )
    config = copy.deepcopy(original.config)
    config.distributed_config = None
    whole = type(original).from_pretrained(
        None, config=config, state_dict=weights, dtype=original.dtype
    )
    if original.can_generate():
        whole.generation_config = original.generation_config
    return whole
