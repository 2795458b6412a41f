"""What Trainer lacks: the schedule of the paper, and the last complete checkpoint."""

from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel, TrainerState

from .file_integrity import fault_of_pickle, json_object

STATE = "trainer_state.json"
MODELS = ("config.json", "adapter_config.json")
# Trainer writes them together, or none where it saves the model only.
RESUMED = ("optimizer.pt", "scheduler.pt", "rng_state*.pth")
PICKLES = (*RESUMED, "scaler.pt", "training_args.bin", "pytorch_model*.bin", "adapter_model.bin")
# Files of FSDP and DeepSpeed in place of some of these; they are not read here.
SHARDED = ("pytorch_model_fsdp*", "optimizer_[0-9]*", "optimizer.bin", "global_step*")


def noam_learning_rate(hidden_size: int, warmup_steps: int) -> float:
    """Return the rate with which `inverse_sqrt` of transformers is the schedule of the paper.

    Section 5.3: the rate at step s is hidden_size^-0.5 · min(s^-0.5, s · warmup_steps^-1.5). Its
    peak, where both terms meet, is what `inverse_sqrt` takes for its learning rate. transformers
    counts from zero, so each update happens at the rate that the paper gives to the one before.
    """
    if hidden_size < 1 or warmup_steps < 1:
        raise ValueError(
            f"hidden_size is {hidden_size} and warmup_steps is {warmup_steps}: the schedule of "
            "the paper needs both to be 1 or more"
        )
    return (hidden_size * warmup_steps) ** -0.5


def enable_activation_checkpointing(model: PreTrainedModel) -> None:
    """Have each layer computed again in the backward pass, by the name of this transformers.

    Since transformers 5.23 it is called so, and the older name is deprecated.
    """
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})


def paper_training_arguments(hidden_size: int, warmup_steps: int = 4000) -> dict[str, object]:
    """Return the settings of section 5.3 of the paper for Trainer's arguments.

    Use them as `Seq2SeqTrainingArguments(folder, **paper_training_arguments(512))`. The label
    smoothing of section 5.4 is a field of the configuration.
    """
    return {
        "learning_rate": noam_learning_rate(hidden_size, warmup_steps),
        "lr_scheduler_type": "inverse_sqrt",
        "warmup_steps": warmup_steps,
        "adam_beta1": 0.9,
        "adam_beta2": 0.98,
        "adam_epsilon": 1e-9,
    }


def last_complete_checkpoint(folder: str | Path) -> str | None:
    """Return the path of Trainer's newest complete checkpoint in `folder`, or None.

    transformers' own `get_last_checkpoint` goes by the number alone, so it may return what a killed
    run left behind. Here every file that resuming needs is checked, and none of their code is run.
    Two kinds of damage cannot be found: changed values in a safetensors file, which has no
    checksums, and anything in the folders that FSDP and DeepSpeed write.
    """
    numbered = [
        (int(number), path)
        for path in Path(folder).glob("checkpoint-*")
        if (number := path.name.removeprefix("checkpoint-")).isdigit()
    ]
    complete = (str(path) for _, path in sorted(numbered, reverse=True) if is_complete(path))
    return next(complete, None)


def is_complete(checkpoint: Path) -> bool:
    """Return whether all files of a checkpoint are there, and each of them is whole.

    Trainer writes its state last. But a run may also be killed while it writes a checkpoint a
    second time, and disks may lose what was written last.
    """
    try:
        TrainerState.load_from_json(str(regular(checkpoint / STATE)))
        return (
            are_whole(checkpoint)
            and has_weights(checkpoint)
            and has_configuration(checkpoint)
            and can_be_resumed(checkpoint)
        )
    except (OSError, ValueError, TypeError, RecursionError, SafetensorError):
        return False


def regular(path: Path) -> Path:
    """Return the path if it is a file, for opening a pipe would wait for ever."""
    if not path.is_file():
        raise FileNotFoundError(path)
    return path


def matching(checkpoint: Path, patterns: Iterable[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(checkpoint.glob(pattern))]


def are_whole(checkpoint: Path) -> bool:
    for path in matching(checkpoint, (*MODELS, "generation_config.json", "*.index.json")):
        json_object(regular(path))
    for path in matching(checkpoint, ("*.safetensors",)):
        with safe_open(regular(path), "pt"):  # compares its size with what it promises
            pass
    return not any(fault_of_pickle(regular(path)) for path in matching(checkpoint, PICKLES))


def has_weights(checkpoint: Path) -> bool:
    """Return whether weights, of a model or of adapters, are there with all parts of an index."""
    for index in checkpoint.glob("*.index.json"):
        parts = json_object(index).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            return False
        if not all((checkpoint / str(part)).is_file() for part in parts.values()):
            return False
    models = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin", *SHARDED)
    return bool(matching(checkpoint, models))


def has_configuration(checkpoint: Path) -> bool:
    """Return whether there is a configuration; a plain torch module is saved without one."""
    is_of_transformers = matching(checkpoint, ("generation_config.json", "*.py"))
    return not is_of_transformers or bool(matching(checkpoint, MODELS))


def can_be_resumed(checkpoint: Path) -> bool:
    found = [bool(matching(checkpoint, (name,))) for name in RESUMED]
    ranks = sorted(int(path.stem.split("_")[-1]) for path in checkpoint.glob("rng_state_*.pth"))
    if ranks and ranks != list(range(ranks[0], ranks[-1] + 1)):  # each machine may hold its own
        return False
    return all(found) or not any(found) or bool(matching(checkpoint, SHARDED))
