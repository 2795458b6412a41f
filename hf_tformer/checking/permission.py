"""Decide whether the code of a folder may run here: this is the one place that does.

    reading finds it dangerous         → it does not run, except with run_anyway
    a wall of MUST_STAND is missing    → it does not run, except with without_walls
    all of it is the package's own     → it may run without walls

Code that equals the installed package's, byte for byte, is not unknown: it runs in the user's own
process as soon as a model of this package is opened. What such a folder holds besides is data.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

from .behind_walls import Outcome
from .findings import dangers
from .folder import MODEL_CODE, CheckError, Folder
from .reading_data import NATIVE, PICKLES
from .reading_process import read

MUST_STAND = ("files", "namespaces", "system calls")
REMEDIES = {
    "files": "take a Linux kernel from 6.2 on that has Landlock switched on",
    "namespaces": "allow users to make them (on Ubuntu `sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0`, in Docker `--security-opt "
    "seccomp=unconfined`)",
    "system calls": "take a Linux kernel for x86-64 or arm64 that has seccomp",
    "all": "use Linux, which may be a virtual machine",
}


class NoWallsError(CheckError):
    """A sentence that says which wall is missing, for which reason no code was run."""


class DangerousError(CheckError):
    """A sentence that says what reading found, for which reason no code was run."""


def refuse_dangerous(
    folder: Folder, remedy: str, besides: Iterable[str] = (), run_anyway: bool = False
) -> None:
    """Read a folder as `check` does; refuse it where the findings are dangerous.

    Findings of the checks in `besides` do not count.
    """
    found = [] if run_anyway else dangers(read(folder))
    if found := [finding for finding in found if finding.name not in besides]:
        first, others = found[0], len(found) - 1
        more = f" (and {others} more findings)" if others else ""
        raise DangerousError(
            f"no code was run, because reading it found {first.name}: {first.detail}{more}: "
            f"{remedy}"
        )


def needed_walls(path: Path, without_walls: bool) -> tuple[str, ...]:
    """Return the walls without which the code in a folder must not be started."""
    return () if without_walls or is_known(path) else MUST_STAND


def is_known(path: Path) -> bool:
    """Return whether every file of code in a folder is one of the installed package, unchanged.

    Weights may be links to other places. Nothing else may, as a link could lead to code.
    """
    folder, ours = Folder(path), Folder(MODEL_CODE).all_sources
    for name, source in folder.all_sources.items():
        if name not in ours or source.fault or source.content != ours[name].content:
            return False
    strange = {n for n in folder.files.names if PICKLES.search(n) or NATIVE.search(n)}
    strange |= {n for n in folder.files.faults if not n.endswith(".safetensors")}
    names = {finding.name for finding in dangers(read(folder))}  # reads the JSON files, too
    return not strange and not folder.unread and names <= {"files"}


def refuse_missing(outcome: Outcome, needed: Collection[str]) -> None:
    """Refuse a run that was not started because a wall that it needs does not stand."""
    stood = outcome.walls or {"all": "the process that raises them ended early"}
    missing = {name: why for name, why in stood.items() if why and name in (*needed, "all")}
    if not needed or not missing:
        return
    reasons = ", ".join(f"{name} ({why})" for name, why in missing.items())
    raise NoWallsError(
        f"no code was run, because walls are missing here that must stand around it: {reasons}: "
        f"{', and '.join(REMEDIES[name] for name in missing)}, or say --without-walls to run it "
        "with all your rights"
    )
