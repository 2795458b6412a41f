"""The attention page beside bertviz, on the same attentions: written, opened, clicked."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from . import viewers
from .measure import MIB, OURS, Absent, Row, Settings, Workload, Workloads

WRITING, SIZE, OPENING = "writing the file", "size of the file", "opening, a layer"
Figures = dict[str, float | str]  # by action: seconds or MiB, or why there are none
# Our picture, the one of bertviz that shows the same; the names of opening it and of a click in it.
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
    def label(self) -> str:
        return f"{self.layers} layers × {self.heads} heads, {self.tokens} tokens, {self.kind}"


def page(settings: Settings) -> Workloads:
    if settings.quick:
        cases = [Case(2, 4, 8)]
    else:
        cases = [Case(12, 16, tokens) for tokens in (64, 256, 1000)]
        cases += [Case(12, 16, 256, "random", is_compared=False)]
        cases += [Case(24, 16, 1000, is_compared=False, ceilings={WRITING: 10.0, OPENING: 2.0})]
    for case in cases:
        yield Workload(case.label, rows=partial(rows_of, case))


def weights_of(case: Case) -> tuple[torch.Tensor, list[str]]:
    """Draw weights that fall with the distance, as many trained ones do, or random ones."""
    torch.manual_seed(0)
    places = torch.arange(case.tokens)
    scores = -(places[:, None] - places[None]).abs().float() / 8
    scores = scores.expand(case.layers, case.heads, -1, -1)
    if case.kind == "random":
        scores = torch.randn(scores.shape)
    weights = scores.masked_fill(places[None] > places[:, None], float("-inf")).softmax(-1)
    return weights, [f"word{place}" for place in places.tolist()]


def rows_of(case: Case) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file, their_file = Path(folder, "ours.html"), Path(folder, "theirs.html")
        ours = of_the_file(viewers.OURS_OF_A_LAYER, case, file)
        rows = [*rows_beside(case, OURS, ours, ours)]
        for viewer, peer, *actions in PAIRS:
            shown = of_the_picture(viewer, file, actions)
            rows += rows_beside(case, OURS, shown, shown)
            if case.is_compared:
                theirs = of_the_file(peer, case, their_file)
                theirs |= of_the_picture(peer, their_file, actions)
                rows += rows_beside(case, peer.name, ours | shown, theirs)
                rows += without_network(case, peer.name, their_file)
                their_file.unlink(missing_ok=True)
        return rows


def of_the_file(viewer: viewers.Viewer, case: Case, path: Path) -> Figures:
    def write() -> tuple[float, float]:
        seconds = viewers.time_writing(viewer, partial(weights_of, case), path)
        return seconds, path.stat().st_size / MIB

    figures = attempt((WRITING, SIZE), write)
    if isinstance(figures[WRITING], str):
        path.unlink(missing_ok=True)  # half of it
    return figures


def of_the_picture(viewer: viewers.Viewer, path: Path, actions: Iterable[str]) -> Figures:
    if not path.is_file():
        return dict.fromkeys(actions, "there is no file to open")
    return attempt(actions, lambda: viewers.time_opening(viewer, path))


def attempt(actions: Iterable[str], measure: Callable[[], Iterable[float]]) -> Figures:
    try:
        return dict(zip(actions, measure(), strict=True))
    except Absent as reason:
        return dict.fromkeys(actions, f"absent: {reason}")
    except viewers.Failed as reason:
        return dict.fromkeys(actions, str(reason))


def row_of(case: Case, action: str, peer: str, **fields: object) -> Row:
    return Row(f"{case.label}: {action}", "MiB" if action == SIZE else "seconds", peer, **fields)


def rows_beside(case: Case, peer: str, ours: Figures, theirs: Figures) -> Iterator[Row]:
    """Yield a row for each figure of a peer, or of ours where the peer is ours."""
    for action, figure in theirs.items():
        if isinstance(figure, str):
            yield row_of(case, action, peer, note=figure)
        elif peer == OURS:
            yield row_of(case, action, peer, ours=figure, ceiling=case.ceilings.get(action))
        elif not isinstance(ours[action], str):
            ratio = figure / ours[action]
            yield row_of(case, action, peer, ours=ours[action], theirs=figure, ratio=ratio)


def without_network(case: Case, peer: str, path: Path) -> Iterator[Row]:
    """Yield one row, for the smallest page."""
    if not path.is_file() or case.tokens > 64 or case.kind != "sharp":
        return
    try:
        count = viewers.pictures_without_network(path)
    except Absent:
        return
    note = "nothing is drawn" if count == 0 else f"{count} pictures are drawn"
    yield row_of(case, "opening without a network", peer, note=note)
