"""`hf_tformer.check`: find what is wrong with a model folder that brings its own code.

    folder or repository (folder.py) → read in a process of its own (reading_process.py)
        → compare with this package's own code, if it is one of its families
        → run in a fresh process (fresh_process.py, probe.py) → findings

With `run=False` the code is only read. Nor is it run if reading found something dangerous, or if
walls are missing (permission.py).
"""

import os
import sys
from hashlib import sha256
from pathlib import Path

from .. import __version__
from ..path_safety import printable
from .files import few
from .findings import Finding, dangers
from .folder import CheckError, Folder, digest, left_out, located
from .fresh_process import TIMEOUT, run_probe
from .package_code import code_under, is_of_package
from .permission import NoWallsError
from .reading_process import read
from .same_answers import compare_with_package


def check(
    source: str | os.PathLike,
    revision: str | None = None,
    run: bool = True,
    *,
    cache: str | os.PathLike | None = None,
    timeout: float = TIMEOUT,
    memory: int | None = None,
    run_anyway: bool = False,
    without_walls: bool = False,
) -> list[Finding]:
    """Check a folder or a repository on the Hub; return the findings.

    A repository is downloaded into `cache`, or into a temporary folder that is removed again.
    Without `run` its weights are not downloaded, and its code is read but not executed. Code that
    looks dangerous is only executed with `run_anyway`, and where walls are missing, unknown code is
    only executed `without_walls`: a finding "walls" fails, as the folder was not judged. `timeout`
    (seconds) limits reading and running, each; `memory` (bytes) limits the fresh process.
    """
    with located(source, revision, cache, with_weights=run) as path:
        folder = Folder(path, [] if run or Path(source).is_dir() else left_out(str(source), path))
        findings = read(folder, timeout)
        dangerous = dangers(findings)
        if is_of_package(folder):
            may_run = run and (run_anyway or not dangerous)
            findings.append(compare_code(folder, may_run, timeout, without_walls))
        elif code_under(folder):
            findings.append(compare_foundation(folder))
        if run and dangerous and not run_anyway:
            names = few(dict.fromkeys(finding.name for finding in dangerous))
            remedy = "--run-anyway runs it behind the walls"
            findings.append(Finding("running", "skip", f"not run, because of {names}: {remedy}"))
        elif run:
            print(
                f"running the code of {printable(source)} in a fresh process ...", file=sys.stderr
            )
            try:
                findings += run_probe(path, timeout, memory, without_walls)
            except NoWallsError as error:
                findings.append(Finding("walls", "fail", f"not judged: {error}"))
    return findings


def compare_code(folder: Folder, run: bool, timeout: float, without_walls: bool = False) -> Finding:
    """Compare the folder's files of code with those of the installed package, byte by byte.

    If they differ and may `run`, compare their answers, too.
    """
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
    listed = "; ".join(f"{kind}: {few(names, 20)}" for kind, names in faults.items() if names)
    installed = f"the installed hf_tformer {__version__}"
    if not listed:
        return Finding("code", "ok", f"equal to {installed}, {len(ours)} files")
    verdict, matters = "warn", ""
    if run and theirs and (faults["differs"] or faults["missing"]):
        verdict, matters = compare_answers(folder, timeout, without_walls)
    return Finding("code", verdict, f"not equal to {installed}: {listed}{matters}")


def compare_foundation(folder: Folder) -> Finding:
    """Compare the files of ours that a user's own model is built on with the installed ones."""
    ours, theirs = digests_of(folder)
    others = sorted(name for name in ours if theirs.get(name) != ours[name])
    built = f"a model of its own, built on hf_tformer {__version__}"
    if not others:
        return Finding("code", "ok", f"{built}, {len(ours)} files")
    remedy = "`tformer refresh` renews them where the answers are equal"
    return Finding("code", "warn", f"{built}, but {few(others, 20)} differ: {remedy}")


def digests_of(folder: Folder) -> tuple[dict[str, str], dict[str, str]]:
    """Return the SHA-256 by file of the package's code for a folder, and of the folder's own.

    It is "unread" for a file that cannot be read, which another check reports.
    """
    code = code_under(folder)
    ours = {name: digest(path) for name, path in code.items()}
    theirs = {
        source.name: "unread" if source.fault else sha256(source.content).hexdigest()
        for source in folder.all_sources.values()
        if not source.folder
    }
    return ours, theirs


def compare_answers(folder: Folder, timeout: float, without_walls: bool) -> tuple[str, str]:
    """Return a verdict on other code than the package's, and a clause that gives the reason."""
    if not isinstance(folder.config.get("auto_map"), dict):
        return "warn", ""
    try:
        difference = compare_with_package(folder, timeout, without_walls).difference
    except CheckError as error:
        return "warn", f"; their answers were not compared: {error}"
    if difference:
        return "fail", f"; where the package is installed its code runs, and {difference}"
    return "warn", "; the answers are equal: `tformer refresh` renews the code"
