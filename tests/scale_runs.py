"""Short runs in every layout, whose checkpoints are read in every other.

`python -m scale_runs FOLDER WANTED` forks all groups of processes that it takes.
"""

import sys
import time
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from families import FAMILIES
from forked import in_processes
from torch.distributed.tensor import DTensor

from hf_tformer.scale import last_checkpoint, load_checkpoint, save_checkpoint
from hf_tformer.scale.layout import Layout

# Sizes that two processes can halve, and odd ones that four cannot share evenly.
SIZES = {
    "vocab_size": 102,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "mlp_type": "gated",
    "qk_norm": True,
}
ROWS = [[5, 6, 7, 8], [9, 10], [11], [12, 13, 14]]
TARGETS = [[5], [6, 7], [8, 9, 10], [11, 12]]

LAYOUTS = {
    1: {"plain": Layout()},
    2: {"copies": Layout(replicate=2), "shards": Layout(shard=2), "parts": Layout(tensor=2)},
    4: {
        "four copies": Layout(replicate=4),
        "four shards": Layout(shard=4),
        "copies of shards": Layout(replicate=2, shard=2),
        "copies of parts": Layout(replicate=2, tensor=2),
        "shards of parts": Layout(shard=2, tensor=2),
    },
}


class Run:
    """A model in a layout, and its optimizer."""

    def __init__(self, folder, family, layout, rate=0.01):
        torch.manual_seed(0)
        self.layout, self.folder = layout, folder
        self.model = layout.open(family.model_class, folder / "model", torch.device("cpu")).train()
        self.called = layout.wrap(self.model)
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
        """All that is trained, whole, found without DCP."""
        names = {p: name for name, p in self.model.named_parameters()}
        found = {name: whole(value) for name, value in self.model.state_dict().items()}
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                for key, value in self.optimizer.state[p].items():
                    found[f"{names[p]} {key}"] = whole(value)
                for key in ("lr", "betas", "weight_decay", "initial_lr"):
                    if key in group:
                        found[f"{names[p]} {key}"] = group[key]
        return found


def whole(value):
    if isinstance(value, DTensor):
        value = value.full_tensor()
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def write_run(place, family, name, layout):
    """Two steps, a checkpoint, and the losses of two more."""
    run = Run(place, family, layout)
    run.train(2)
    save_checkpoint(place / name, 2, run.model, run.optimizer, {"step": 2, "rate": 0.1})
    state = run.state()
    losses = run.train(2)
    if int(__import__("os").environ["RANK"]) == 0:
        torch.save({"state": state, "losses": losses}, place / f"{name}.pt")


def read_run(place, family, name, layout):
    saved = torch.load(place / f"{name}.pt")
    run = Run(place, family, layout, rate=0.5)
    path = last_checkpoint(place / name)
    assert path == place / name / "checkpoint-2", path
    assert load_checkpoint(path, run.model, run.optimizer) == {"step": 2, "rate": 0.1}
    found = run.state()
    assert found.keys() == saved["state"].keys(), found.keys() ^ saved["state"].keys()
    for key, value in saved["state"].items():
        same = (
            torch.equal(found[key], value)
            if isinstance(value, torch.Tensor)
            else found[key] == value
        )
        assert same, f"{key} is {found[key]}, was {value}"
    torch.testing.assert_close(run.train(2), saved["losses"], rtol=1e-4, atol=0)


def each(work, cases, layouts):
    for (place, family, name), (own, layout) in product(cases, layouts.items()):
        try:
            work(place, family, name or own, layout)
        except BaseException as error:
            raise AssertionError(f"{work.__name__}: {place.name}, {name or ''}, {own}") from error


def main(folder, families, processes):
    torch.set_num_threads(1)
    places = []
    for family, tie in product(families, (True, False)):
        place = Path(folder) / f"{family.name}, {'tied' if tie else 'untied'}"
        family.build(**SIZES, tie_word_embeddings=tie).save_pretrained(place / "model")
        places.append((place, family))
    for count in processes:
        t = time.time()
        in_processes(count, each, write_run, [(p, f, None) for p, f in places], LAYOUTS[count])
        print("written", count, time.time() - t)
    names = [name for count in processes for name in LAYOUTS[count]]
    for count in processes:
        t = time.time()
        cases = [(p, f, name) for (p, f), name in product(places, names)]
        in_processes(count, each, read_run, cases, LAYOUTS[count])
        print("read", count, time.time() - t)


if __name__ == "__main__":
    main(sys.argv[1], FAMILIES[: int(sys.argv[2])], (1, 2, 4))
