"""RESULTS.md, made of one JSON file per benchmark, so that each can be measured again alone."""

import json
from pathlib import Path

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results", HERE / "RESULTS.md"
HEAD = """# Results

Written by `python -m benchmarks NAME --write` (all of them: `make bench`), never by hand.

Ours and the peer run in one process, on the same weights and tokens, in turns; outputs are compared
before anything is timed. A ratio is the peer's figure over ours, the median over the rounds of the
ratios within a round: above one, ours is better. In brackets its quartiles, and the least that this
project promises. Memory is what a run adds to a fresh process that holds the weights. A share is
the fraction of what the machine can do at best, measured in the same run.
"""


def save(result):
    RESULTS.mkdir(exist_ok=True)
    about = result["about"]
    place = "" if about["device"] == "cpu" else f"-{about['device']}-{about['dtype']}"
    path = RESULTS / f"{result['name']}{place}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def saved(order):
    """The results that are there: in the order of the benchmarks, the CPU's first."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")]
    places = list(order)
    return sorted(results, key=lambda r: (r["about"]["device"] != "cpu", places.index(r["name"])))


def page(results):
    return "\n".join([HEAD, *map(section, results)])


def section(result):
    lines = [f"## {result['title']} (`{result['name']}`)", "", describe(result), ""]
    lines += ["| task | peer | ours | theirs | ratio | promised |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in result["rows"]]
    return "\n".join([*lines, ""])


def describe(result):
    about, limits = result["about"], result["limits"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return (
        f"{about['date']}; {about['machine']}, {about['threads']} threads, {about['dtype']}; "
        f"Python {about['python']}, {versions}; {about['rounds']} rounds. "
        f"Matrix product {limits['flops'] / 1e9:.0f} GFLOP/s, "
        f"reading {limits['bytes'] / 1e9:.1f} GB/s."
    )


def cells(row):
    if row["note"]:
        return [row["workload"], row["peer"], row["note"], "", "", ""]
    if row["theirs"] is None:
        share = "" if row["share"] is None else f"{row['share']:.0%} of {row['share_of']}"
        return [row["workload"], row["peer"], amount(row, "ours"), "", share, ""]
    spread = "" if row["spread"] is None else " ({:.2f} to {:.2f})".format(*row["spread"])
    ratio = f"**{row['ratio']:.2f}**{spread}"
    promised = f"{row['floor']:.2f}" if row["floor"] else ""
    return [
        row["workload"],
        row["peer"],
        amount(row, "ours"),
        amount(row, "theirs"),
        ratio,
        promised,
    ]


def amount(row, side):
    value = row[side]
    if row["measure"] == "seconds":
        return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
    return f"{value:.0f} {row['measure']}"


def line(row):
    """The same for a terminal."""
    task, peer, *rest = cells(row)
    figures = "  ".join(cell.replace("*", "") for cell in rest[:3] if cell)
    promised = f"  promised {row['floor']:.2f}" if row["floor"] else ""
    missed = ", MISSED" if row["floor"] and row["ratio"] and row["ratio"] < row["floor"] else ""
    return f"{task:44} {peer:36} {figures}{promised}{missed}"
