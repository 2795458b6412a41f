"""RESULTS.md, made of one JSON file per benchmark, so that each can be measured again alone."""

import json
from pathlib import Path

from . import curves

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results", HERE / "RESULTS.md"
HEAD = """# Results

Written by `python -m benchmarks NAME --write` (all of them: `make bench`), never by hand.

Ours and the peer run in one process, on the same weights and tokens, in turns; outputs are compared
before anything is timed. A ratio is the peer's figure over ours, the median over the rounds of the
ratios within a round: above one, ours is better. In brackets its quartiles, and the least that this
project promises. Memory is what a run adds to a fresh process that holds the weights, where freed
blocks go back at once. A share is the fraction of what the machine can do at best, measured in the
same run.
"""


def stem(result):
    about = result["about"]
    place = "" if about["device"] == "cpu" else f"-{about['device']}-{about['dtype']}"
    return f"{result['name']}{place}"


def save(result):
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{stem(result)}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    curves.plot(result, path.with_suffix(".png"))


def saved(order):
    """The results that are there: in the order of the benchmarks, the CPU's first."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")]
    places = list(order)
    return sorted(results, key=lambda r: (r["about"]["device"] != "cpu", places.index(r["name"])))


def page(results):
    return "\n".join([HEAD, promises(results), *map(section, results)])


def promises(results):
    """What has been kept of what is promised, and by how much the rest is missed."""
    lines = ["| benchmark | promises kept | missed |", "|---|---|---|"]
    for result in results:
        promised = [row for row in result["rows"] if promise(row)]
        missed = [row for row in promised if is_missed(row)]
        kept = f"{len(promised) - len(missed)} of {len(promised)}"
        if promised:
            lines.append(f"| {result['title']} | {kept} | {'; '.join(map(shortfall, missed))} |")
    return "\n".join([*lines, ""])


def shortfall(row):
    what = "memory" if row["measure"] == "MiB" else "time"
    found = f"{row['ratio']:.2f}" if row["floor"] else amount(row, "ours")
    return f"{row['workload']}, {what} beside {row['peer']}: {found}, promised {promise(row)}"


def section(result):
    lines = [f"## {result['title']} (`{result['name']}`)", "", describe(result), ""]
    lines += ["| task | peer | ours | theirs | ratio | promised |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in result["rows"]]
    if growth := curves.exponents(result["rows"]):
        lines += ["", *(f"- {line}" for line in growth)]
        lines += ["", f"![{result['title']}](results/{stem(result)}.png)"]
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
        return [row["workload"], row["peer"], amount(row, "ours"), "", share, promise(row)]
    spread = "" if row["spread"] is None else " ({:.2f} to {:.2f})".format(*row["spread"])
    ratio = f"**{row['ratio']:.2f}**{spread}"
    return [
        row["workload"],
        row["peer"],
        amount(row, "ours"),
        amount(row, "theirs"),
        ratio,
        promise(row),
    ]


def promise(row):
    if row["ceiling"]:
        return f"at most {row['ceiling']:g} s"
    return f"{row['floor']:.2f}" if row["floor"] else ""


def is_missed(row):
    is_slow = row["ceiling"] and row["ours"] and row["ours"] > row["ceiling"]
    return is_slow or (row["floor"] and row["ratio"] and row["ratio"] < row["floor"])


def amount(row, side):
    value = row[side]
    if row["measure"] == "seconds":
        return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
    return f"{value:.0f} {row['measure']}" if value >= 10 else f"{value:.2g} {row['measure']}"


def line(row):
    """The same for a terminal."""
    task, peer, *figures, promised = cells(row)
    shown = "  ".join(cell.replace("*", "") for cell in figures if cell)
    promised = f"  promised {promised}" if promised else ""
    missed = ", MISSED" if is_missed(row) else ""
    return f"{task:44} {peer:36} {shown}{promised}{missed}"
