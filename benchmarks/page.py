"""The attention page beside bertviz, on the same attentions: written, opened, clicked."""

import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from . import viewers
from .measure import OURS, Absent, Count, Row
from .memory import MIB

WRITING, SIZE, OPENING = "writing the file", "size of the file", "opening, a layer"
# our picture, and the one of bertviz that shows the same; what opening it and a click in it are
PAIRS = (
    (viewers.OURS_OF_A_LAYER, viewers.HEAD_VIEW, OPENING, "another layer"),
    (viewers.OURS_OF_ALL, viewers.MODEL_VIEW, "opening, all heads", "one head of all"),
)


@dataclass(frozen=True)
class Case:
    layers: int
    heads: int
    tokens: int
    kind: str = "sharp"
    is_compared: bool = True
    ceilings: dict[str, float] = field(default_factory=dict)

    @property
    def label(self):
        return f"{self.layers} layers × {self.heads} heads, {self.tokens} tokens, {self.kind}"


def page(settings):
    if settings.quick:
        cases = [Case(2, 4, 8)]
    else:
        cases = [Case(12, 16, tokens) for tokens in (64, 256, 1000)]
        cases += [Case(12, 16, 256, "random", is_compared=False)]
        cases += [Case(24, 16, 1000, is_compared=False, ceilings={WRITING: 10.0, OPENING: 2.0})]
    for case in cases:
        yield Count(case.label, partial(rows_of, case))


def weights_of(case):
    """Sharp weights fall with the distance, as many trained ones do; random ones are any."""
    torch.manual_seed(0)
    places = torch.arange(case.tokens)
    scores = -(places[:, None] - places[None]).abs().float() / 8
    scores = scores.expand(case.layers, case.heads, -1, -1)
    if case.kind == "random":
        scores = torch.randn(scores.shape)
    weights = scores.masked_fill(places[None] > places[:, None], float("-inf")).softmax(-1)
    return weights, [f"word{place}" for place in places.tolist()]


def rows_of(case):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ours.html")
        written = of_the_file(viewers.OURS_OF_A_LAYER, case, file)
        rows = [our_row(case, action, written[action]) for action in written]
        for ours, theirs, *actions in PAIRS:
            found = of_the_picture(ours, file, actions)
            rows += [our_row(case, action, found[action]) for action in found]
            if case.is_compared:
                their_file = Path(folder, "theirs.html")
                peer = of_the_file(theirs, case, their_file)
                peer |= of_the_picture(theirs, their_file, actions)
                rows += beside(case, theirs.name, written | found, peer)
                rows += without_network(case, theirs.name, their_file)
                their_file.unlink(missing_ok=True)
        return rows


def of_the_file(viewer, case, path):
    """What is done → seconds or MiB, or why there is none."""
    try:
        seconds = viewers.time_writing(viewer, partial(weights_of, case), path)
    except Absent as reason:
        return dict.fromkeys((WRITING, SIZE), f"absent: {reason}")
    except viewers.Failed as reason:
        path.unlink(missing_ok=True)  # half of it
        return dict.fromkeys((WRITING, SIZE), str(reason))
    return {WRITING: seconds, SIZE: path.stat().st_size / MIB}


def of_the_picture(viewer, path, actions):
    if not path.is_file():
        return dict.fromkeys(actions, "there is no file to open")
    try:
        return dict(zip(actions, viewers.time_opening(viewer, path), strict=True))
    except Absent as reason:
        return dict.fromkeys(actions, f"absent: {reason}")
    except viewers.Failed as reason:
        return dict.fromkeys(actions, str(reason))


def label_of(case, action):
    return f"{case.label}: {action}"


def measure_of(action):
    return "MiB" if action == SIZE else "seconds"


def our_row(case, action, found):
    row = Row(label_of(case, action), measure_of(action), OURS)
    if isinstance(found, str):
        row.note = found
    else:
        row.ours, row.ceiling = found, case.ceilings.get(action)
    return row


def beside(case, peer, ours, theirs):
    for action, found in theirs.items():
        row = Row(label_of(case, action), measure_of(action), peer)
        if isinstance(found, str):
            row.note = found
        elif not isinstance(ours[action], str):
            row.ours, row.theirs, row.ratio = ours[action], found, found / ours[action]
        yield row


def without_network(case, peer, path):
    """One row, from the smallest page."""
    if not path.is_file() or case.tokens > 64 or case.kind != "sharp":
        return
    try:
        count = viewers.pictures_without_network(path)
    except Absent:
        return
    note = "nothing is drawn" if count == 0 else f"{count} pictures are drawn"
    yield Row(label_of(case, "opening without a network"), "seconds", peer, note=note)
