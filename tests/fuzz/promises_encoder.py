"""Promises about what an encoder sees."""

import torch

from .building import as_batch, build, check_same, texts
from .cases import BACKENDS, Case, cases

packed_cases = cases(backends=BACKENDS, steady=True, families=("encoder",))


@torch.no_grad()
def check_packed(case: Case):
    """Texts packed into a row have the logits that they have apart."""
    model, (rows,) = build(case), texts(case)
    orders = [rows] if case.backend.startswith("flash") else [rows, rows[::-1]]
    packed = [[token for row in order for token in row] for order in orders]
    positions = [[i for row in order for i in range(len(row))] for order in orders]
    batch, _ = as_batch(case, packed)
    del batch["attention_mask"]
    found = model(**batch, position_ids=torch.tensor(positions)).logits
    for logits, order in zip(found, orders, strict=True):
        for row, part in zip(order, logits.split([len(row) for row in order]), strict=True):
            alone, _ = as_batch(case, [row])
            check_same(part, model(**alone).logits[0], "a packed text and it alone")


def let_all_slide(case):
    """So that one mask can say the same of every layer, and one rotation serves them."""
    config, depth = case.config, case.config["num_hidden_layers"]
    rope = config.get("rope_parameters") or {"rope_type": "default"}
    config["sliding_window"] = config.get("sliding_window") or 1 + case.seed % 8
    config["layer_types"] = ["sliding_attention"] * depth
    config["rope_parameters"] = rope.get("sliding_attention", rope)
    return case


window_cases = cases(backends=BACKENDS, families=("encoder",)).map(let_all_slide)


@torch.no_grad()
def check_window(case: Case):
    """A layer that slides sees the tokens nearer than its window, on each side, and no others."""
    batch, real = as_batch(case, *texts(case))
    actual = build(case)(**batch).logits
    window = case.config["sliding_window"]
    wide = {"sliding_window": None, "layer_types": None}
    everything = Case(**{**vars(case), "config": {**case.config, **wide}})
    places = torch.arange(real.shape[1])
    near = (places - places[:, None]).abs() < window
    mask = (near & real[:, None])[:, None]
    positions = (real.long().cumsum(-1) - 1).clamp(min=0)
    given = {**batch, "attention_mask": mask, "position_ids": positions}
    expected = build(everything, "eager")(**given).logits
    check_same(actual[real], expected[real], "a window and a mask that says the same")
