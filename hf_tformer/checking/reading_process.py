"""Read a folder in a process of its own, with limits of time and memory.

    read(folder) → python -I → answer: static_findings → one JSON value on its standard output

A file that is made to be slow or large to read costs that process its life, and the folder is not
judged. Nothing of the folder is run here: the limits guard against what parsers can be made to do.
"""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from ..path_safety import printable
from .behind_walls import GIB, KEPT, described
from .findings import Finding
from .folder import CheckError, Folder, opened
from .reading import static_findings

TIMEOUT = 300.0  # seconds
MEMORY = GIB  # a tokenizer.json of 40 MB takes half of it
START = (
    "import json, sys; job = json.loads(sys.stdin.readline()); sys.path[:] = job['path']; "
    f"from {__name__} import answer; answer(job)"
)


def read(folder: Folder, timeout: float = TIMEOUT) -> list[Finding]:
    """Return what reading finds, and tell the folder which of its JSON files cannot be read.

    A CheckError says why it was not judged.
    """
    package = str(Path(__file__).parents[2])
    job = {
        # Without the current folder, which may be the one to read.
        "path": [package, *(path for path in sys.path if Path(path).is_absolute())],
        "folder": str(folder.path),
        "left_out": folder.left_out,
        "memory": MEMORY,
        "seconds": timeout,
    }
    variables = {name: os.environ[name] for name in KEPT if name in os.environ}
    command = [sys.executable, "-I", "-c", START]
    given = (json.dumps(job) + "\n").encode()
    try:
        ended = subprocess.run(
            command, input=given, capture_output=True, timeout=timeout, env=variables, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CheckError(
            f"{folder.path} was not judged: reading it takes more than {timeout:g} seconds: see "
            "which file is large or strange, or allow more by --timeout"
        ) from error
    if ended.returncode:
        last = (ended.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise CheckError(
            f"{folder.path} was not judged: the process that read it died "
            f"({described(ended.returncode)}): {printable(last)}"
        )
    found = json.loads(ended.stdout)
    if "error" in found:
        raise CheckError(found["error"])
    folder.unread.update(found["unread"])
    return [Finding(**{**one, "places": tuple(one["places"])}) for one in found["findings"]]


def answer(job: dict) -> None:
    """Read a folder and print what was found: all that the process does."""
    limit(job["memory"], job["seconds"])
    try:
        folder = opened(Path(job["folder"]), job["left_out"])
        findings = [asdict(finding) for finding in static_findings(folder)]
        found: dict[str, object] = {"findings": findings, "unread": folder.unread}
    except CheckError as error:
        found = {"error": str(error)}
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # to release millions of small objects would take seconds


def limit(memory: int, seconds: float) -> None:
    """Limit this process; time is limited for the case that its caller is gone, too."""
    import gc

    gc.disable()  # it would look through the objects of a large file again and again
    with contextlib.suppress(ImportError):  # Windows has none of this
        import resource

        limits = {resource.RLIMIT_DATA: memory, resource.RLIMIT_CPU: int(seconds) + 1}
        for kind, value in limits.items():
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
