"""Short runs in many layouts, whose checkpoints are read in others.

`python -m scale_runs FOLDER CASE` forks all groups of processes that it takes.
"""

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from hf_tformer.scale import (
    CheckpointWriter,
    Layout,
    last_checkpoint,
    load_checkpoint,
    save_folder,
)
from support.families import DECODER, FAMILIES
from support.forked import in_processes

# A vocabulary that four processes share evenly, and sizes that they do not.
SIZES = {
    "vocab_size": 104,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "mlp_type": "gated",
    "qk_norm": True,
}
ROWS = [[5, 6, 7, 8], [9, 10], [11], [12, 13, 14]]
TARGETS = [[5], [6, 7], [8, 9, 10], [11, 12]]

LAYOUTS = {
    "one": Layout(),
    "2 copies": Layout(2),
    "2 shards": Layout(1, 2),
    "2 parts": Layout(1, 1, 2),
    "4 copies": Layout(4),
    "4 shards": Layout(1, 4),
    "2 copies of 2 shards": Layout(2, 2),
    "2 copies of 2 parts": Layout(2, 1, 2),
    "2 shards of 2 parts": Layout(1, 2, 2),
}


@dataclass
class Case:
    """A model, the layouts whose checkpoints are written, and those that read them all."""

    name: str
    family: object
    fields: dict
    written: tuple
    read: tuple


SMALL = Case(
    "decoder, small",
    DECODER,
    {"tie_word_embeddings": True},
    ("2 shards",),
    ("one", "2 shards of 2 parts"),
)
CASES = tuple(
    Case(
        f"{family.name}, {'tied' if tie else 'untied'}",
        family,
        {"tie_word_embeddings": tie, "vocab_size": 104 if tie else 102},
        tuple(LAYOUTS),
        tuple(LAYOUTS),
    )
    for family, tie in product(FAMILIES, (True, False))
)


class Run:
    """A model in a layout, and its optimizer."""

    def __init__(self, folder, family, layout, rate=0.01):
        self.layout = layout
        self.model = layout.open(family.model_class, folder / "model", torch.device("cpu"))
        self.called = layout.wrap(self.model.train())
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others}]
        # With Adam's small epsilon, the sign of a gradient that is nought but for rounding counts.
        self.optimizer = torch.optim.AdamW(groups, lr=rate, eps=1e-3, foreach=False)
        batch = family.training_batch(ROWS, TARGETS)
        _, labels = family.shifted(batch["labels"][..., None], batch["labels"])
        self.count = int((labels != -100).sum())
        self.mine = {k: v[layout.data_rank :: layout.data_size] for k, v in batch.items()}

    def train(self, steps):
        losses = []
        for _ in range(steps):
            loss = self.called(**self.mine, num_items_in_batch=self.count).loss
            (loss * self.layout.data_size).backward()  # gradients are averaged
            self.optimizer.step()
            self.optimizer.zero_grad()
            whole = loss.detach() / self.layout.tensor
            if self.layout.processes > 1:
                dist.all_reduce(whole)
            losses.append(whole.item())
        return losses

    def state(self):
        """All that a run needs, whole, found without DCP."""
        names = {p: name for name, p in self.model.named_parameters()}
        found = {name: whole(value) for name, value in self.model.state_dict().items()}
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                values = {**self.optimizer.state[p], **group}
                del values["params"]
                found |= {f"{names[p]} {key}": whole(value) for key, value in values.items()}
        return found


def whole(value):
    value = value.full_tensor() if isinstance(value, DTensor) else value
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def write_run(place, family, name):
    """Two steps, a checkpoint, the folder of an end, and the losses of two more steps."""
    run = Run(place, family, LAYOUTS[name])
    run.train(2)
    state = run.state()
    with CheckpointWriter(place / name, in_background=True) as writer:
        writer.save(2, run.model, run.optimizer, {"step": 2})
        save_folder(run.called, place / f"{name}, saved")
        losses = run.train(2)
    if os.environ["RANK"] == "0":
        torch.save({"state": state, "losses": losses}, place / f"{name}.pt")


def read_run(place, family, name, layout):
    saved = torch.load(place / f"{name}.pt")
    run = Run(place, family, layout, rate=0.5)
    path = last_checkpoint(place / name)
    assert load_checkpoint(path, run.model, run.optimizer) == {"step": 2}
    assert_same(run.state(), saved["state"])
    torch.testing.assert_close(run.train(2), saved["losses"], rtol=1e-4, atol=0)


def assert_same(found, expected):
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
    for name, value in expected.items():
        is_tensor = isinstance(value, torch.Tensor)
        same = torch.equal(found[name], value) if is_tensor else found[name] == value
        assert same, f"{name} is {found[name]} and was {value}"


def write_one(folder, case, name):
    with named(case, name):
        write_run(folder, case.family, name)


def read_all(folder, case, name):
    for written in case.written:
        with named(case, f"{name} from {written}"):
            read_run(folder, case.family, written, LAYOUTS[name])


def look_at_saved(folder, case):
    """A folder opens as ever, with the same weights; what was tied stays so."""
    for name in case.written:
        with named(case, name):
            model = case.family.auto.from_pretrained(folder / f"{name}, saved")
            state = torch.load(folder / f"{name}.pt")["state"]
            assert_same(model.state_dict(), {n: state[n] for n in model.state_dict()})
            tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
            assert tied is case.fields["tie_word_embeddings"]
            config = (folder / f"{name}, saved" / "config.json").read_text()
            assert "distributed" not in config, config


@contextmanager
def named(case, name):
    """An error says which case it is."""
    try:
        yield
    except BaseException as error:
        raise AssertionError(f"{case.name}: {name}") from error
    if os.environ.get("RANK", "0") == "0":
        print(f"{case.name}: {name}", flush=True)


def main(folder, case):
    torch.set_num_threads(1)
    case.family.build(**{**SIZES, **case.fields}).save_pretrained(folder / "model")
    # Groups of gloo leave threads behind: with new processes for each layout they stay few.
    for name in case.written:
        in_processes(LAYOUTS[name].processes, write_one, folder, case, name)
    for name in case.read:
        in_processes(LAYOUTS[name].processes, read_all, folder, case, name)
    look_at_saved(folder, case)


if __name__ == "__main__":
    main(Path(sys.argv[1]), next(c for c in (SMALL, *CASES) if c.name == sys.argv[2]))
