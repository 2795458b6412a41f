"""What is wrong with a model folder that brings its own code.

    folder or repository (folder.py) → read without running anything (reading.py)
        → compare with this package's own code, where it is one of its families
        → run in a fresh process (fresh_process.py, probe.py) → findings

`run=False` only reads it. Nor does a folder run in which reading found something dangerous.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from .. import __version__
from ..path_safety import printable
from .files import few
from .folder import CheckError, Folder, located, opened
from .fresh_process import TIMEOUT, run_probe
from .package_code import code_under, is_of_package
from .reading import dangers, static_findings
from .same_answers import compare_with_package
from .source_code import Source


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
    memory: int | None = None,
    run_anyway: bool = False,
) -> list[Finding]:
    """Every finding about a folder or a repository on the Hub.

    A repository is downloaded into `cache`, or into a temporary folder that is removed again.
    Without `run` its code is read but not executed; code that looks dangerous is not executed
    either, but with `run_anyway`. `timeout` (seconds) and `memory` (bytes) limit the fresh process.
    """
    with located(source, revision, cache) as path:
        folder = opened(path)
        findings = [Finding(*line) for line in static_findings(folder)]
        dangerous = dangers(findings)
        if is_of_package(folder):
            may_run = run and (run_anyway or not dangerous)
            findings.append(compare_code(folder, may_run, timeout))
        elif code_under(folder):
            findings.append(compare_foundation(folder))
        if run and dangerous and not run_anyway:
            names = few(dict.fromkeys(finding.name for finding in dangerous))
            remedy = "--run-anyway runs it behind the walls"
            findings.append(Finding("running", "skip", f"not run: {names} failed; {remedy}"))
        elif run:
            print(
                f"running the code of {printable(source)} in a fresh process ...", file=sys.stderr
            )
            findings += [Finding(*line) for line in run_probe(path, timeout, memory)]
    return findings


def compare_code(folder: Folder, run: bool, timeout: float) -> Finding:
    """Whether the folder's files of code are those of the installed package, byte by byte; where
    they are not, whether that matters."""
    ours, theirs = digests_of(folder)
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
    installed = f"the installed hf_tformer {__version__}"
    if not told:
        return Finding("code", "ok", f"equal to {installed}, {len(ours)} files")
    verdict, matters = "warn", ""
    if run and theirs and (faults["differs"] or faults["missing"]):
        verdict, matters = compare_answers(folder, timeout)
    return Finding("code", verdict, f"not equal to {installed}: {told}{matters}")


def compare_foundation(folder: Folder) -> Finding:
    """Whether a model of somebody's own is built on files that the installed package has."""
    ours, theirs = digests_of(folder)
    others = sorted(name for name in ours if theirs.get(name) != ours[name])
    built = f"a model of its own, built on hf_tformer {__version__}"
    if not others:
        return Finding("code", "ok", f"{built}, {len(ours)} files")
    remedy = "`tformer refresh` renews them where the answers are equal"
    return Finding("code", "warn", f"{built}, but {few(others, 20)} differ: {remedy}")


def digests_of(folder: Folder) -> tuple[dict[str, str], dict[str, str]]:
    """file → SHA-256 of the installed package's code for a folder, and of all that lies there."""
    code = code_under(folder)
    ours = {name: sha256(path.read_bytes()).hexdigest() for name, path in code.items()}
    return ours, digests(source for source in folder.all_sources.values() if not source.folder)


def compare_answers(folder: Folder, timeout: float) -> tuple[str, str]:
    """What it means that the installed package has other code: a verdict, and a clause."""
    if not isinstance(folder.config.get("auto_map"), dict):
        return "warn", ""
    try:
        difference = compare_with_package(folder, timeout).difference
    except CheckError as error:
        return "warn", f"; their answers were not compared: {error}"
    if difference:
        return "fail", f"; where the package is installed its code runs, and {difference}"
    return "warn", "; the answers are equal: `tformer refresh` renews the code"


def digests(sources: Iterable[Source]) -> dict[str, str]:
    """file → SHA-256; "unread" where it cannot be read, which another check reports."""
    return {s.name: "unread" if s.fault else sha256(s.content).hexdigest() for s in sources}
