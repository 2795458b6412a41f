"""The figures of a training while it runs: printed, and sent to a tracker of accelerate."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from program import ProgramError

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

FORMATS = {
    "loss": "loss {:.6f}",
    "eval_loss": "validation loss {:.6f}",
    "perplexity": "perplexity {:.1f}",
    "grad_norm": "gradient norm {:.4f}",
    "learning_rate": "learning rate {:.3g}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "mfu": "MFU {:.1%}",
    "memory": "{:,.0f} MB",
    "seconds": "{:,.0f} s",
}


def in_one_line(step: int, figures: dict[str, float]) -> str:
    scaled = {**figures, "memory": figures.get("memory", 0) / 1e6}
    shown = (FORMATS[name].format(scaled[name]) for name in FORMATS if name in figures)
    return f"step {step}: {', '.join(shown)}"


class Reporter:
    """Prints each figure and sends it on, in the first process; the others are silent.

    `name` is a tracker of `accelerate.tracking`, or none. The files of tensorboard are in
    `folder/runs`, or in TENSORBOARD_LOGGING_DIR.
    """

    def __init__(self, name: str, folder: Path, is_first: bool):
        self.is_first = is_first
        self.tracker = None if name == "none" else make_tracker(name, folder)

    def __call__(self, step: int, figures: dict[str, float]) -> None:
        if "eval_loss" in figures:
            figures = {**figures, "perplexity": math.exp(figures["eval_loss"])}
        if self.is_first:
            print(in_one_line(step, figures), flush=True)
        if self.tracker:
            self.tracker.log(figures, step=step)

    def close(self) -> None:
        if self.tracker:
            self.tracker.finish()


def make_tracker(name: str, folder: Path) -> "GeneralTracker":
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    known = [str(tracker) for tracker in get_available_trackers()]
    if name not in known:
        raise ProgramError(
            f"--report_to {name} is not supported: give none, or what is installed here of "
            f"accelerate's trackers: {', '.join(known) or 'nothing is'}"
        )
    PartialState()  # by which trackers find out who is the first process
    tracker_class = LOGGER_TYPE_TO_CLASS[name]
    place = {"logging_dir": os.environ.get("TENSORBOARD_LOGGING_DIR", str(folder / "runs"))}
    tracker = tracker_class(
        folder.name, **(place if tracker_class.requires_logging_directory else {})
    )
    tracker.start()
    return tracker
