"""How time and memory grow with size: an exponent for each curve, and a plot of all."""

from math import log
from statistics import linear_regression

NAMES = {"seconds": "time", "MiB": "memory"}


def points(rows):
    """{(measure, curve): [(size, figure), …]} of the rows that belong to a curve."""
    found = {}
    for row in rows:
        figure = row["ours"] if row["theirs"] is None else row["theirs"]
        if row["curve"] and figure and figure > 0:
            found.setdefault((row["measure"], row["curve"]), []).append((row["size"], figure))
    return {curve: sorted(pairs) for curve, pairs in found.items()}


def exponents(rows):
    """Sentences: figure ∝ size^exponent, by least squares over the logarithms."""
    return [
        f"{NAMES[measure]} of {curve}: ∝ tokens^{exponent(pairs):.2f}, "
        f"from {pairs[0][0]:.0f} to {pairs[-1][0]:.0f}"
        for (measure, curve), pairs in points(rows).items()
        if len(pairs) > 1
    ]


def exponent(pairs):
    return linear_regression(
        *([log(value) for value in axis] for axis in zip(*pairs, strict=True))
    )[0]


def plot(result, path):
    """One panel for each measure; nothing where the result has no curves."""
    curves = points(result["rows"])
    if not curves:
        return
    from matplotlib.figure import Figure  # without pyplot: no display is needed

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
