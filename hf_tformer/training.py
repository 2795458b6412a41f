"""What training needs and Trainer lacks: the paper's schedule, and the last whole checkpoint."""

import zipfile
from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers import TrainerState


def noam_learning_rate(hidden_size: int, warmup_steps: int) -> float:
    """The rate at which transformers' `inverse_sqrt` is the schedule of the paper.

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


def paper_training_arguments(hidden_size: int, warmup_steps: int = 4000) -> dict[str, object]:
    """Section 5.3 for Trainer: `Seq2SeqTrainingArguments(folder, **paper_training_arguments(512))`.

    The label smoothing of section 5.4 is a field of the configuration.
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
    """The path of Trainer's newest checkpoint in `folder` that was written to its end, or None.

    transformers' own `get_last_checkpoint` goes by the number alone, and so hands out what a killed
    run left behind.
    """
    numbered = [
        (int(number), path)
        for path in Path(folder).glob("checkpoint-*")
        if (number := path.name.removeprefix("checkpoint-")).isdigit()
    ]
    complete = (str(path) for _, path in sorted(numbered, reverse=True) if is_complete(path))
    return next(complete, None)


def is_complete(checkpoint: Path) -> bool:
    """Trainer writes its state last; weights and optimizer are opened, for a run may also be killed
    while it writes a checkpoint a second time."""
    try:
        TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        for path in checkpoint.glob("*.safetensors"):
            with safe_open(path, "pt"):  # compares the size of the file with what it promises
                pass
    except (OSError, ValueError, TypeError, SafetensorError):
        return False
    return all(zipfile.is_zipfile(path) for path in checkpoint.glob("*.pt"))
