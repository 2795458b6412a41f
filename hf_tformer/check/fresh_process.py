"""The fresh process that runs the code of a folder (probe.py), and what it reports.

It cannot import this package and has no token, no cache and no network. It is not a sandbox: the
code of the folder runs with the rights of the user.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

PROBE = Path(__file__).with_name("probe.py")
TIMEOUT = 1800  # seconds; a model of ten billion parameters takes minutes to load in float32
HANGS = "timeout"


def run_probe(path: Path, timeout: float = TIMEOUT) -> list[tuple[str, str, str]]:
    """(name, verdict, detail) of each check; where the process dies or hangs, the one it was at
    fails."""
    with tempfile.TemporaryDirectory() as work:
        report, errors = Path(work, "report.jsonl"), Path(work, "stderr.txt")
        command = [sys.executable, "-I", str(PROBE), str(path), work, str(report)]
        with errors.open("w") as stderr:
            try:
                process = subprocess.run(
                    command,
                    cwd=work,
                    env=environment(work),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    timeout=timeout,
                )
                reason = None if not process.returncode else f"exit status {process.returncode}"
            except subprocess.TimeoutExpired:
                reason = HANGS
        lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        return read_report(map(json.loads, lines), reason, last_line(errors))


def read_report(lines: Iterable[list], reason: str | None, traceback: str) -> list:
    findings, running = [], "fresh process"
    for name, verdict, detail in lines:
        running = name if verdict == "running" else None
        if verdict != "running":
            findings.append((name, verdict, detail))
    if reason or running:
        detail = f"the process died ({reason or 'it ended itself'}): {traceback or 'no message'}"
        if reason == HANGS:
            detail = "no answer within the time allowed: allow more, if it is only large"
        findings.append((running or "fresh process", "fail", detail))
    return findings


def environment(work: str) -> dict[str, str]:
    """No token, no cache and no way to the Hub; everything that is written goes into `work`."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("HF_", "HUGGING", "PYTHON"))}
    return kept | {
        "HF_HOME": str(Path(work, "home")),
        "HF_MODULES_CACHE": str(Path(work, "modules")),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUTF8": "1",
    }


def last_line(file: Path) -> str:
    lines = [line.strip() for line in file.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")
