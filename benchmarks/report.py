"""RESULTS.md, its curves, and one JSON file per benchmark: each can be measured again alone."""

import json
from collections.abc import Iterable
from math import log
from pathlib import Path
from statistics import linear_regression

from .measure import MOST_SECONDS, is_spread
from .pictures import NAMES, Fields, draw_limits, draw_ratios, plot, points
from .standing import is_stale

HERE = Path(__file__).parent
STALE = " (stale)"
RESULTS, PAGE = HERE / "results", HERE / "RESULTS.md"
HEAD = f"""# Results

Written by `python -m benchmarks NAME --write` (all of them: `make bench`), never by hand.

Ours and the peer run in one process, on the same weights and tokens, in turns; outputs are compared
before anything is timed. Of a padded batch and a corpus, a sixteenth of the tokens may differ:
rounding decides between equally good ones. A ratio is the peer's figure over ours, the median over
the rounds of the ratios within a round: above one, ours is better. In brackets its quartiles, and
the least that this project promises. Rounds are repeated, up to three times as many in
{MOST_SECONDS:.0f} seconds, while the quartiles are more than 5 % of the ratio apart; "unsteady"
says that they stayed so. Where seven rounds take longer than that, three are enough. Memory is what
a run adds to a fresh process that holds the weights, where freed blocks go back at once. A share is
the fraction of what the machine can do at best, measured in the same run. Each benchmark says when
it was run, on which processor and at which commit. It is stale where the measured code has changed
since: `python -m benchmarks all --write --stale` measures those, and goes on where it was cut off.

How long theirs take beside ours, the median and the range of the rows with each peer, of which the
classes of transformers are one; grey is what is stale:

![their time over ours, for each peer](results/ratios.png)

How near ours comes to what the machine can do:

![shares of the matrix product and of the read bandwidth](results/limits.png)
"""


def save(result: Fields) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{result['name']}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    plot(result, path.with_suffix(".png"))


def saved(order: Iterable[str]) -> list[Fields]:
    """Return the results that are there, in the order of the benchmarks."""
    paths = (RESULTS / f"{name}.json" for name in order)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]


def write(order: Iterable[str]) -> None:
    """Write the page and its pictures of the results that are there."""
    results = saved(order)
    PAGE.write_text(page(results), encoding="utf-8")
    standing = [result for result in results if not is_stale(result)]
    draw_ratios(results, standing, RESULTS / "ratios.png")
    draw_limits(results, standing, RESULTS / "limits.png")


def page(results: list[Fields]) -> str:
    return "\n".join([HEAD, promises(results), *map(section, results)])


def promises(results: list[Fields]) -> str:
    """List how many promises are kept, and by how much the others are missed."""
    lines = ["| benchmark | promises kept | missed |", "|---|---|---|"]
    for result in results:
        promised = [row for row in result["rows"] if promise(row)]
        missed = [row for row in promised if is_missed(row)]
        kept = f"{len(promised) - len(missed)} of {len(promised)}"
        if promised:
            title = f"{result['title']}{STALE if is_stale(result) else ''}"
            lines.append(f"| {title} | {kept} | {'; '.join(map(shortfall, missed))} |")
    return "\n".join([*lines, ""])


def shortfall(row: Fields) -> str:
    what = "memory" if row["measure"] == "MiB" else "time"
    found = f"{row['ratio']:.2f}" if row["floor"] else amount(row, "ours")
    return f"{row['workload']}, {what} beside {row['peer']}: {found}, promised {promise(row)}"


def section(result: Fields) -> str:
    lines = [f"## {result['title']} (`{result['name']}`)", "", describe(result), ""]
    lines += ["| task | peer | ours | theirs | ratio | promised |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in result["rows"]]
    if growth := exponents(result["rows"]):
        lines += ["", *(f"- {line}" for line in growth)]
        lines += ["", f"![{result['title']}](results/{result['name']}.png)"]
    return "\n".join([*lines, ""])


def describe(result: Fields) -> str:
    about, limits = result["about"], result["limits"]
    at = f"commit {about['commit']}" if about.get("commit") else "commit unknown"
    at += STALE if is_stale(result) else ""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return (
        f"{about['date']}, {at}; {about['machine']}, {about['threads']} threads, {about['dtype']}; "
        f"Python {about['python']}, {versions}; {about['rounds']} rounds. "
        f"Matrix product {limits['flops'] / 1e9:.0f} GFLOP/s, "
        f"reading {limits['bytes'] / 1e9:.1f} GB/s."
    )


def cells(row: Fields) -> list[str]:
    task = [row["workload"], row["peer"]]
    if row["note"]:
        return [*task, row["note"], "", "", ""]
    if row["theirs"] is None:
        share = "" if row["share"] is None else f"{row['share']:.0%} of {row['share_of']}"
        return [*task, amount(row, "ours"), "", share, promise(row)]
    spread = "" if row["spread"] is None else " ({:.2f} to {:.2f})".format(*row["spread"])
    unsteady = ", unsteady" if is_unsteady(row) else ""
    ratio = f"**{row['ratio']:.2f}**{spread}{unsteady}"
    return [*task, amount(row, "ours"), amount(row, "theirs"), ratio, promise(row)]


def is_unsteady(row: Fields) -> bool:
    if row["spread"] is None:
        return False
    low, high = row["spread"]
    return is_spread((low, row["ratio"], high))


def promise(row: Fields) -> str:
    if row["ceiling"]:
        return f"at most {row['ceiling']:g} s"
    return f"{row['floor']:.2f}" if row["floor"] else ""


def is_missed(row: Fields) -> bool:
    is_slow = row["ceiling"] and row["ours"] and row["ours"] > row["ceiling"]
    return bool(is_slow or (row["floor"] and row["ratio"] and row["ratio"] < row["floor"]))


def amount(row: Fields, side: str) -> str:
    value = row[side]
    if row["measure"] == "seconds":
        return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
    return f"{value:.0f} {row['measure']}" if value >= 10 else f"{value:.2g} {row['measure']}"


def line(row: Fields) -> str:
    """Return a row for a terminal."""
    task, peer, *figures, promised = cells(row)
    shown = "  ".join(cell.replace("*", "") for cell in figures if cell)
    promised = f"  promised {promised}" if promised else ""
    missed = ", MISSED" if is_missed(row) else ""
    return f"{task:44} {peer:36} {shown}{promised}{missed}"


def exponents(rows: list[Fields]) -> list[str]:
    """Describe figure ∝ size^exponent, by least squares over the logarithms."""
    lines = []
    for (measure, curve), pairs in points(rows).items():
        if len(pairs) > 1:
            exponent, _ = linear_regression(
                *([*map(log, axis)] for axis in zip(*pairs, strict=True))
            )
            sizes = f"from {pairs[0][0]:.0f} to {pairs[-1][0]:.0f}"
            lines.append(f"{NAMES[measure]} of {curve}: ∝ tokens^{exponent:.2f}, {sizes}")
    return lines
