"""Pictures of RESULTS.md: ratios beside each peer, shares of the machine, and curves."""

import re
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from .measure import OURS

Fields = dict[str, Any]  # of a Row, or of a whole result, as JSON holds them
NAMES = {"seconds": "time", "MiB": "memory"}
# What people wait for → the benchmarks that measure it.
GROUPS = {
    "reading a prompt": ("prefill",),
    "decoding": (
        *("greedy", "half", "released", "gpt2", "mixtures", "padded-batch", "prompt-beams"),
        "assisted",
    ),
    "translating": ("seq2seq", "beams", "t5", "corpus"),
    "encoding": ("encoder", "encoder-only", "sentences", "vectors"),
    "training": ("training", "training-sizes", "scale"),
    "converting": ("conversion",),
    "beside other runtimes": ("engine", "engines", "chat"),
}
# Classes of transformers are one line of the picture.
THEIRS = re.compile(r"^\w+(Model|Encoder|ForMaskedLM|ForCausalLM|ForConditionalGeneration)\b")
AHEAD, BEHIND, OLD = "#1565c0", "#c62828", "#9e9e9e"
KINDS = {"matrix product": "#1565c0", "read bandwidth": "#2e7d32"}
Ratios = dict[tuple[str, str], list[float]]  # of a group and a peer


def ratios_of(results: Iterable[Fields]) -> Ratios:
    """Return the ratios of times beside each peer, by what people wait for."""
    by_name = {result["name"]: result for result in results}
    found: Ratios = {}
    for group, names in GROUPS.items():
        for row in (row for name in names if name in by_name for row in by_name[name]["rows"]):
            is_ours = row["peer"].startswith(OURS)
            if row["measure"] == "seconds" and row["ratio"] and not is_ours:
                peer = THEIRS.sub("transformers", row["peer"])
                found.setdefault((group, peer), []).append(row["ratio"])
    return found


def draw_ratios(results: list[Fields], standing: list[Fields], path: Path) -> None:
    """Draw a line for each peer: the median of its rows, from the least to the most."""
    ratios, stand = ratios_of(results), ratios_of(standing)
    figure, axes = empty_figure(len(ratios))
    for place, (line, values) in enumerate(reversed(ratios.items())):
        usual = median(values)
        colour = OLD if stand.get(line) != values else AHEAD if usual >= 1 else BEHIND
        axes.plot([min(values), max(values)], [place, place], color=colour, alpha=0.4, linewidth=5)
        axes.plot(usual, place, "o", color=colour)
        axes.annotate(f"{usual:.2f}", (max(values), place), (6, -3), textcoords="offset points")
    labels = [f"{group}: {peer} ({len(ratios[group, peer])})" for group, peer in ratios]
    axes.set_yticks(range(len(labels)), reversed(labels))
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="their time over ours; right of the line ours is faster")
    ticks = (0.5, 1, 1.5, 2, 3, 4)
    axes.set_xticks(ticks, map(str, ticks))
    axes.set_xticks([], minor=True)
    figure.savefig(path, dpi=110)


def draw_limits(results: list[Fields], standing: list[Fields], path: Path) -> None:
    """Draw for each of our tasks the share that it reaches of what the machine can do."""
    rows = [row for result in results for row in result["rows"] if row["share"]]
    rows.sort(key=lambda row: (row["share_of"], row["share"]))
    stand = [row for result in standing for row in result["rows"]]
    figure, axes = empty_figure(len(rows))
    colours = [KINDS[row["share_of"]] if row in stand else OLD for row in rows]
    axes.barh(range(len(rows)), [row["share"] for row in rows], color=colours)
    axes.set_yticks(range(len(rows)), [f"{r['workload']}: of {r['share_of']}" for r in rows])
    axes.set(xlim=(0, 1), xlabel="share of what the machine can do, measured in the same run")
    figure.savefig(path, dpi=110)


def empty_figure(lines: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # without pyplot: no display is needed

    figure = Figure(figsize=(10, 1.2 + 0.27 * lines), layout="constrained")
    axes = figure.subplots()
    axes.grid(axis="x", alpha=0.3)
    axes.set_ylim(-0.6, max(lines, 1) - 0.4)
    return figure, axes


def points(rows: list[Fields]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return sizes and figures by measure and curve, of the rows that belong to one."""
    found = {}
    for row in rows:
        figure = row["ours"] if row["theirs"] is None else row["theirs"]
        if row["curve"] and figure and figure > 0:
            found.setdefault((row["measure"], row["curve"]), []).append((row["size"], figure))
    return {curve: sorted(pairs) for curve, pairs in found.items()}


def plot(result: Fields, path: Path) -> None:
    """Draw one panel for each measure; nothing where the result has no curves."""
    curves = points(result["rows"])
    if not curves:
        return
    from matplotlib.figure import Figure

    measures = sorted({measure for measure, _ in curves}, reverse=True)
    figure = Figure(figsize=(5 * len(measures), 4), layout="constrained")
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for panel, shown in zip(panels, measures, strict=True):
        for (measure, curve), pairs in curves.items():
            if measure == shown:
                panel.plot(*zip(*pairs, strict=True), marker="o", label=curve)
        panel.set(xscale="log", yscale="log", xlabel="tokens", ylabel=f"{NAMES[shown]}, {shown}")
        panel.set_xscale("log", base=2)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.suptitle(result["title"])
    figure.savefig(path, dpi=110)
