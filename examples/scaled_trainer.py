"""Seq2SeqTrainer on one process or many: the same examples at each step, and their speed.

Trainer fills the last step of an epoch up with examples from its beginning, and how many these are
depends on the number of processes. Here each step takes the examples that `RowOrder` names, whole
steps only, so that the losses of a run do not depend on the number of processes, on that of loading
workers, nor on where it was interrupted. What counts is the number of examples in a step:
`per_device_train_batch_size` · `gradient_accumulation_steps` · processes.
"""

import copy
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, Sampler
from transformers import Seq2SeqTrainer, TrainerCallback, TrainerState

from hf_tformer.scale import Meter, RowOrder

MEASURED_EXAMPLES = 1000  # whose mean length is that of all


class ScaledTrainer(Seq2SeqTrainer):
    """`args.peak_flops` is what a device can compute, where Meter does not know it."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.meter = Meter(
            self.model.config,
            mean_length(self.train_dataset),
            self.args.device,
            devices=max(1, self.args.world_size),
            peak_flops=self.args.peak_flops,
        )
        self.tokens = 0  # of this process since the last report
        self.add_callback(StepsAlone(self.meter))

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler | None:
        rows = len(train_dataset if train_dataset is not None else self.train_dataset)
        rows_per_step = self.get_total_train_batch_size(self.args)
        if self.args.train_sampling_strategy != "random" or rows < rows_per_step:
            return super()._get_train_sampler(train_dataset)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return WholeSteps(RowOrder(rows, rows_per_step, seed), self.state)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        # Still on the device: asking for the number would hold it up.
        self.tokens = self.tokens + inputs["attention_mask"].sum() + (inputs["labels"] >= 0).sum()
        return super().training_step(model, inputs, num_items_in_batch)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs:
            logs = {**logs, **self.speed()}
        super().log(logs, *args, **kwargs)

    def speed(self) -> dict[str, float]:
        """Count the tokens of both sides. A token of the meter is one of the target with one of the
        source: half as many."""
        tokens = torch.as_tensor(self.tokens, device=self.args.device)
        self.tokens = 0
        self.meter.tick(int(self.accelerator.reduce(tokens)) / 2)
        found = self.meter.read()
        speed = {"tokens_per_second": round(2 * found["tokens_per_second"])}
        return {**speed, **({"mfu": found["mfu"]} if "mfu" in found else {})}

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        # Several processes fill their last batches up with the first pairs: these count once.
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        before = copy.deepcopy(self.model.generation_config)
        result = super().prediction_step(*args, **kwargs)
        # It now holds every default of transformers, which would be saved, and contradict ours.
        self.model.generation_config = before
        return result


def mean_length(rows: Iterable[dict[str, list[int]]]) -> int:
    """Return the mean of sources and targets."""
    lengths = [
        len(ids)
        for row in itertools.islice(rows, MEASURED_EXAMPLES)
        for ids in (row["input_ids"], row["labels"])
    ]
    return max(1, round(sum(lengths) / len(lengths)))


class WholeSteps(Sampler):
    """The examples of the epoch that the run is in, step by step.

    Trainer's state holds which epoch that is: a sampler that counts epochs itself would begin with
    the first one again where a run is resumed.
    """

    def __init__(self, order: RowOrder, state: TrainerState):
        self.order, self.state = order, state

    def __len__(self) -> int:
        return self.order.steps_per_epoch * self.order.rows_per_step

    def __iter__(self) -> Iterator[int]:
        steps = self.order.steps_per_epoch
        first = self.state.global_step // steps * steps
        for step in range(first, first + steps):
            yield from self.order.step(step)


class StepsAlone(TrainerCallback):
    """Keeps the time of saving and evaluating out of that of steps."""

    def __init__(self, meter: Meter):
        self.meter = meter

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.meter.skip()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.meter.tick(0)  # tokens are counted at each report

    on_save = on_evaluate = on_train_begin
