"""Run the verbs of the Makefile on the last commit, one by one, and write what each showed.

    python tools/verify.py FOLDER [VERB …]      make verify FOLDER=.verify ONLY="docs test-wheel"

FOLDER holds a clone with its environments and what each verb printed; it takes hours and some
twenty gigabytes. What was shown stands in docs/verified.json, and VERIFIED.md is written from it
after each verb, so that a run which was cut off goes on where it stopped: without VERB, those run
whose line is stale, that is, older than a change of what the verb runs.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RECORD, PAGE = ROOT / "docs" / "verified.json", ROOT / "VERIFIED.md"
CODE = ("hf_tformer", "conversion", "pyproject.toml", "Makefile")
QUICK = (*CODE, "benchmarks", "examples", "tools", "tests", "docs", "README.md", "README.zh-CN.md")
# What no test of a runtime, an engine or a tool for study calls.
NOT_CALLED = ("hf_tformer/checking", "hf_tformer/new", "hf_tformer/plan", "hf_tformer/refreshing")
NOT_CALLED += ("hf_tformer/view", "conversion/rehoming")
NOT_CALLED += ("tests/support/warm_python.py", "tests/support/warm_transformers.py")
CALLED = (*CODE, *(f":(exclude){room}" for room in NOT_CALLED))
HELPERS = ("tests/conftest.py", "tests/support")
TESTED = (*QUICK, "constraints/tested.txt")
RUNTIMES = "constraints/runtimes.txt"
# Each verb that shows something, with the paths whose changes make what it showed stale.
COVERS = {
    "lint": (*TESTED, "mlinter.toml"),
    "lint-pythons": TESTED,
    "test": TESTED,
    "test-slow": TESTED,
    "test-floor": (*QUICK, "constraints/floor.txt"),
    "test-newest": QUICK,
    "test-engines": (*CALLED, "tests/engines", *HELPERS, "constraints/engines.txt"),
    "test-runtimes": (*CALLED, "tests/runtimes", *HELPERS, RUNTIMES),
    "test-real": (*CALLED, "tests/real", "benchmarks/weights.py", *HELPERS, RUNTIMES),
    "test-quantisers": (*CALLED, "tests/runtimes", *HELPERS, "constraints/quantisers.txt"),
    "test-study": (*CALLED, "tests/study", *HELPERS, "constraints/study.txt"),
    "test-browser": ("hf_tformer", "tests/view", *HELPERS, "constraints/tested.txt"),
    "test-wheel": TESTED,
    "exports": (*CALLED, "tests/runtimes", *HELPERS, RUNTIMES),
    "docs": (*CODE, "docs", "tests/docs", *HELPERS, "constraints/docs.txt"),
    "dist": (*QUICK, "constraints/dist.txt"),
    "page": ("hf_tformer/view/page", "Makefile"),
    "fuzz": (*CODE, "tests/fuzz", *HELPERS, "constraints/tested.txt"),
    "demo": (*CODE, "examples", "constraints/tested.txt"),
}
# What verbs and benchmarks write themselves, in folders that verbs run: it makes nothing stale.
FIGURES = ("docs/verified.json", "docs/EXPORTS.md", "docs/FAULTS.md", "docs/REAL.md")
FIGURES += ("benchmarks/RESULTS.md", "benchmarks/results")
WRITTEN = [f":(exclude){path}" for path in FIGURES]
WITH = {"fuzz": {"CASES": "10000", "SEED": date.today().strftime("%Y%m%d")}}
TOLD = ("python", "torch", "transformers", "processor", "cores")
HEAD = """# What was run, and what it showed

Each verb of the Makefile was run in a clone of the commit in its line. A line is stale where what
the verb runs has changed since. `make verify` runs what is stale and writes this page, and
`make verify ONLY="docs test-wheel"` those two.

| verb | what it showed | minutes | date | commit | with |
|---|---|---|---|---|---|"""
Line = dict[str, Any]


def main() -> None:
    place, *words = sys.argv[1:]
    wanted = [verb for word in words for verb in word.split(",") if verb]
    if unknown := set(wanted) - COVERS.keys():
        sys.exit(f"no such verb: {', '.join(sorted(unknown))}: choose of {', '.join(COVERS)}")
    lines = record()
    folder = Path(place).resolve()
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    clone = cloned(folder / "clone", commit)
    for verb in wanted or [verb for verb in COVERS if verb not in lines or is_stale(verb, lines)]:
        print(f"make {verb} ...", flush=True)
        lines[verb] = {"commit": commit, **run(verb, clone, folder)}
        print(f"make {verb}: {shown(lines[verb])}", flush=True)
        RECORD.write_text(json.dumps(lines, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        PAGE.write_text(page(lines), encoding="utf-8")


def record() -> dict[str, Line]:
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def is_stale(verb: str, lines: dict[str, Line]) -> bool:
    """Return whether what a verb runs has changed since the commit of its line."""
    words = ["git", "diff", "--quiet", lines[verb]["commit"], "HEAD", "--", *COVERS[verb], *WRITTEN]
    return subprocess.run(words, cwd=ROOT, check=False).returncode != 0


def cloned(clone: Path, commit: str) -> Path:
    """Bring a clone to a commit; what it has built is removed, what it has fetched is kept."""
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    for words in (
        ["fetch", "--quiet", str(ROOT), commit],  # the clone may be of another folder of this work
        ["checkout", "--quiet", "--force", "--detach", commit],
        ["clean", "-fdxq", "--exclude", ".venv*", "--exclude", ".real"],
    ):
        subprocess.run(["git", *words], cwd=clone, check=True)
    return clone


def run(verb: str, clone: Path, folder: Path) -> Line:
    """Run a verb and return what it showed: its counts if it runs tests, else how it ended."""
    given = WITH.get(verb, {})
    report, log = folder / f"{verb}.xml", folder / f"{verb}.log"
    report.unlink(missing_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment = {**kept, "ARGS": f"--junitxml={report}"}
    settings = [f"{name}={value}" for name, value in given.items()]
    with log.open("w") as output:
        where: dict[str, Any] = {"cwd": clone, "stdin": subprocess.DEVNULL, "stdout": output}
        where |= {"stderr": subprocess.STDOUT, "env": environment, "check": False}
        for place in needed(verb, clone):  # minutes that the verb does not take again
            subprocess.run(["make", f"{place}/ready"], **where)
        began = time.monotonic()
        ended = subprocess.run(["make", verb, *settings], **where)
    return {
        "date": date.today().isoformat(),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "status": ended.returncode,
        "with": given,
        **(counted(report) if report.exists() else {}),
        "machine": machine(verb, clone),
    }


def needed(verb: str, clone: Path) -> list[str]:
    """Return the folders of the environments that a verb uses, that of the work itself first."""
    words = ["make", "-n", verb]
    plan = subprocess.run(words, cwd=clone, capture_output=True, text=True, check=False).stdout
    return list(dict.fromkeys(re.findall(r"(\.venv[\w-]*)/bin/", plan)))


def counted(report: Path) -> Line:
    """Count the tests of a report by how they ended, and those left out by their reasons."""
    ends: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        end = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        ends["passed" if end is None else end.tag] += 1
        if end is not None and end.tag == "skipped":
            reasons[end.get("message", "")] += 1
    failed = ends["failure"] + ends["error"]
    return {"passed": ends["passed"], "failed": failed, "left out": dict(reasons.most_common())}


def machine(verb: str, clone: Path) -> dict[str, str]:
    """Return what `tformer env` says of the machine and of the environment of a verb."""
    python = clone / next(iter(needed(verb, clone)), ".venv") / "bin" / "python"
    if not python.exists():
        return {}
    words = [python, "-m", "hf_tformer", "env", "--json"]
    done = subprocess.run(words, cwd=clone, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout) if done.returncode == 0 else {}
    return {name: told[name] for name in TOLD if name in told}


def page(lines: dict[str, Line]) -> str:
    """Write the table for readers, with the reasons of what was left out below it."""
    rows = [
        f"| `make {verb}` | {shown(line)} | {line['minutes']:g} | {line['date']} "
        f"| {line['commit'][:8]}{' (stale)' if is_stale(verb, lines) else ''} "
        f"| {'; '.join(f'{name} {told}' for name, told in line['machine'].items())} |"
        for verb in COVERS
        if (line := lines.get(verb))
    ]
    reasons = [
        f"- `make {verb}`, {count}: {reason}"
        for verb in COVERS
        for reason, count in lines.get(verb, {}).get("left out", {}).items()
    ]
    total = f"Together they took {sum(line['minutes'] for line in lines.values()):.0f} minutes."
    return "\n".join([HEAD, *rows, "", total, "", "## Tests that were left out", "", *reasons, ""])


def shown(line: Line) -> str:
    """Say in a cell how a verb ended."""
    given = "".join(f", {name}={value}" for name, value in line["with"].items())
    if "passed" not in line:
        return ("done" if line["status"] == 0 else f"**ended with {line['status']}**") + given
    left_out = sum(line["left out"].values())
    failed = f"**{line['failed']} failed**" if line["failed"] else "0 failed"
    return f"{line['passed']:,} passed, {failed}, {left_out} left out{given}"


if __name__ == "__main__":
    main()
