"""Seq2SeqTrainer on one process or many: the same rows at each step, and how fast they are.

Trainer fills the last step of an epoch up with rows from its beginning, and how many these are
depends on the number of processes. Here each step takes the rows that `RowOrder` names, whole steps
only, so that the losses of a run do not depend on the number of processes, nor on that of loading
workers, nor on where it was interrupted. What is kept is the number of rows in a step:
`per_device_train_batch_size` · `gradient_accumulation_steps` · processes.
"""

import itertools
from collections.abc import Iterator

import torch
from torch.utils.data import Sampler
from transformers import Seq2SeqTrainer, TrainerCallback

from hf_tformer.scale import Meter, RowOrder

MEASURED_ROWS = 1000  # by which the usual length is known


class ScaledTrainer(Seq2SeqTrainer):
    """`args.peak_flops` is what a device could compute, where Meter does not know it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.meter = Meter(
            self.model.config,
            usual_length(self.train_dataset),
            self.args.device,
            devices=max(1, self.args.world_size),
            peak_flops=self.args.peak_flops,
        )
        self.tokens = 0  # of this process since the last report
        self.add_callback(StepsAlone(self.meter))

    def _get_train_sampler(self, train_dataset=None):
        rows = len(train_dataset if train_dataset is not None else self.train_dataset)
        rows_per_step = self.get_total_train_batch_size(self.args)
        if self.args.train_sampling_strategy != "random" or rows < rows_per_step:
            return super()._get_train_sampler(train_dataset)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return WholeSteps(RowOrder(rows, rows_per_step, seed), self.state)

    def training_step(self, model, inputs, num_items_in_batch=None):
        # Still on the device: asking for the number would hold it up.
        self.tokens = self.tokens + inputs["attention_mask"].sum() + (inputs["labels"] >= 0).sum()
        return super().training_step(model, inputs, num_items_in_batch)

    def log(self, logs, *args, **kwargs):
        if "loss" in logs:
            logs = {**logs, **self.figures()}
        super().log(logs, *args, **kwargs)

    def figures(self) -> dict[str, float]:
        """Tokens are those of both sides. A token of the meter is one of the target with one of the
        source: half as many."""
        tokens = torch.as_tensor(self.tokens, device=self.args.device)
        self.tokens = 0
        self.meter.tick(int(self.accelerator.reduce(tokens)) / 2)
        found = self.meter.read()
        speed = {"tokens_per_second": round(2 * found["tokens_per_second"])}
        return {**speed, **({"mfu": found["mfu"]} if "mfu" in found else {})}


def usual_length(rows) -> int:
    """The mean of sources and targets."""
    lengths = [
        len(ids)
        for row in itertools.islice(rows, MEASURED_ROWS)
        for ids in (row["input_ids"], row["labels"])
    ]
    return max(1, round(sum(lengths) / len(lengths)))


class WholeSteps(Sampler):
    """The rows of the epoch that the run is in, step by step.

    Trainer's state says which epoch that is: a sampler that counts epochs itself would begin with
    the first one again where a run goes on.
    """

    def __init__(self, order, state):
        self.order, self.state = order, state

    def __len__(self) -> int:
        return self.order.steps_per_epoch * self.order.rows_per_step

    def __iter__(self) -> Iterator[int]:
        steps = self.order.steps_per_epoch
        first = self.state.global_step // steps * steps
        for step in range(first, first + steps):
            yield from self.order.step(step)


class StepsAlone(TrainerCallback):
    """Saving and measuring take time, too, which is not that of steps."""

    def __init__(self, meter):
        self.meter = meter

    def on_train_begin(self, *args, **kwargs):
        self.meter.skip()

    def on_step_end(self, *args, **kwargs):
        self.meter.tick(0)  # tokens are counted when they are told

    on_save = on_evaluate = on_train_begin
