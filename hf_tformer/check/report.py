"""What is wrong with a model folder that brings its own code.

    folder or repository (folder.py) → read without running anything (reading.py, source_code.py)
        → compare with this package's own code, where it is one of its families
        → run in a fresh process (fresh_process.py, probe.py) → findings

`run=False` only reads it.
"""

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ..registration import FAMILIES
from .folder import Folder, digest, located, read_config
from .fresh_process import TIMEOUT, run_probe
from .reading import few, static_findings
from .source_code import reached

PACKAGE = "hf_tformer"
MODEL_CODE = Path(__file__).parents[1] / "model"


@dataclass(frozen=True)
class Finding:
    """What one check found; the verdict is "ok", "fail", "warn" or "skip"."""

    name: str
    verdict: str
    detail: str


def check(
    source: str | os.PathLike,
    revision: str | None = None,
    run: bool = True,
    *,
    cache: str | os.PathLike | None = None,
    timeout: float = TIMEOUT,
) -> list[Finding]:
    """Every finding about a folder or a repository on the Hub.

    A repository is downloaded into `cache`, or into a temporary folder that is removed again.
    Without `run` its code is read but not executed. `timeout` (seconds) limits the fresh process.
    """
    with located(source, revision, cache) as path:
        folder = Folder(path, read_config(path))
        findings = [Finding(*line) for line in static_findings(folder)]
        if folder.config.get("model_type") in FAMILIES:
            findings.append(compare_code(folder))
        if run:
            print(f"running the code of {source} in a fresh process ...", file=sys.stderr)
            findings += [Finding(*line) for line in run_probe(path, timeout)]
    return findings


def compare_code(folder: Folder) -> Finding:
    """Whether the folder's files of code are those of the installed package, byte by byte."""
    package = importlib.import_module(PACKAGE)
    config_name, models = FAMILIES[folder.config["model_type"]]
    entries = {
        package.NAMES[name].rpartition(".")[2] + ".py" for name in (config_name, *models.values())
    }
    ours = {source.path.name: digest(source.path) for source in reached(MODEL_CODE, entries)}
    theirs = {path.name: digest(path) for path in folder.path.glob("*.py")}
    faults = {
        "differs": [
            f"{name} ({theirs[name][:8]}, here {ours[name][:8]})"
            for name in sorted(ours.keys() & theirs.keys())
            if ours[name] != theirs[name]
        ],
        "missing": sorted(ours.keys() - theirs.keys()),
        "extra": sorted(theirs.keys() - ours.keys()),
    }
    told = "; ".join(f"{kind}: {few(names, 20)}" for kind, names in faults.items() if names)
    installed = f"the installed hf_tformer {package.__version__}"
    if told:
        return Finding("code", "warn", f"not equal to {installed}: {told}")
    return Finding("code", "ok", f"equal to {installed}, {len(ours)} files")
