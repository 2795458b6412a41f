"""Run the code of a folder in a fresh process behind walls (probe.py), and judge its report.

    copy of the folder → run_behind_walls(probe.py) → a list of checks, then a verdict on each
        → judge: the checks that must be there, in order, each exactly once → findings

The process reads the copy and never the folder. It sends the list, and its verdict on the
tokenizer, before it imports anything of the folder. All later verdicts come from the interpreter
that runs the folder's code, and code that searches its memory can write them: nothing that the
model answers could prove how it will answer elsewhere. So each such finding says that it rests on
the word of that code (findings.py), and what can be known without its word is known here: which
checks there are (probe_plan.py), which of them must be skipped, and that nothing follows the end.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..path_safety import printable
from .behind_walls import (
    GIB,
    HANGS,
    INTERFERED,
    Outcome,
    default_memory,
    run_behind_walls,
    temporary_folder,
)
from .files import has_holes, roots_of
from .findings import RAN, RAN_FREELY, READ, Finding
from .folder import Folder
from .permission import needed_walls, refuse_missing
from .probe_plan import OTHER_FILES, TOKENIZER, is_possible, possible_verdicts

PROBE = Path(__file__).with_name("probe.py")
TIMEOUT = 1800  # seconds; a model of ten billion parameters takes minutes to load in float32
WEIGHTS = (".safetensors", ".bin")
LARGE = 64 << 20  # bytes of a file that is linked in place of copied where possible
# The walls that keep code from changing a file through a link.
KEEP_FILES = ("files", "system calls")


def run_probe(
    path: Path, timeout: float = TIMEOUT, memory: int | None = None, without_walls: bool = False
) -> list[Finding]:
    """Return the findings of each check; `memory` is in bytes.

    If the process dies or hangs, the check that was running fails. A NoWallsError says that it was
    not started.
    """
    before = state_of(path)
    weights = [path / name for name in before if name.endswith(WEIGHTS)]
    sizes = sum(file.stat().st_size for file in weights if not has_holes(file))
    for link_large in (True, False):
        with temporary_folder() as temporary:
            copy, work = temporary / "copy" / path.name, temporary / "work"
            work.mkdir()
            linked, left_out = copy_folder(path, copy, link_large)
            needed = needed_walls(copy, without_walls)
            outcome = run_behind_walls(
                PROBE,
                [copy, work],
                work=work,
                timeout=timeout,
                readable=[PROBE.parent, copy, *linked],
                memory=memory or default_memory(sizes),
                disk=2 * GIB + 8 * sizes,  # two copies in float32
                needed={*needed, *(KEEP_FILES if linked else ())},
            )
            refuse_missing(outcome, needed)
        if not linked or not any(outcome.walls.get(name, "gone") for name in KEEP_FILES):
            break  # otherwise it was not started, and a copy of everything needs no wall
    findings = list(about_walls(outcome, left_out))
    if changed := sorted(dict(before.items() ^ state_of(path).items())):
        detail = f"files of the folder changed while its code ran: {', '.join(changed)}"
        findings.append(Finding("folder", "fail", printable(detail)))
    return findings + judge(outcome, Folder(path))


def copy_folder(source: Path, target: Path, link_large: bool) -> tuple[list[Path], list[str]]:
    """Copy a folder; return the large files that the copy only links to, and the omitted links.

    Copying large files may take minutes and gigabytes. A link is followed within the folder, into
    the Hub's cache and from weights to weights. Any other would hand a file of the user's to the
    code. A file that is mostly a hole would fill the disk.
    """
    source = source.resolve()
    allowed = roots_of(source)
    linked, left_out = [], []
    for parent, folders, names in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith(".")]
        left_out += [name for name in folders if Path(parent, name).is_symlink()]
        relative = Path(parent).relative_to(source)
        (target / relative).mkdir(parents=True)
        for name in names:
            file = Path(parent, name)
            real, copied = file.resolve(), target / relative / name
            weights = file.suffix in WEIGHTS and real.suffix == file.suffix
            leads_out = not weights and not any(real.is_relative_to(root) for root in allowed)
            if leads_out or (real.is_file() and has_holes(real)):
                left_out.append(str(relative / name))
            elif real.is_file() and link_large and real.stat().st_size >= LARGE:
                copied.symlink_to(real)
                linked.append(real)
            elif real.is_file():
                shutil.copyfile(real, copied)
    return linked, left_out


def state_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return what shows that a file has not changed: programs cannot set the time of that."""
    found: dict[str, tuple[int, ...]] = {}
    for parent, _, names in os.walk(folder):
        for file in (Path(parent, name) for name in names):
            if file.is_file():
                stat = file.stat()
                key = str(file.relative_to(folder))
                found[key] = (stat.st_size, stat.st_ino, stat.st_ctime_ns)
    return found


def about_walls(outcome: Outcome, left_out: list[str]) -> Iterator[Finding]:
    """Yield findings on the walls that stood, and on links that were omitted."""
    stand = [name for name, fault in outcome.walls.items() if not fault]
    fallen = [f"{name}: {fault}" for name, fault in outcome.walls.items() if fault]
    if not outcome.walls:
        fallen = ["the process that raises them died"]
    if fallen:
        detail = f"{', '.join(stand) or 'none'} stand; {'; '.join(fallen)}"
        yield Finding("walls", "warn", printable(f"{detail}: run only code that you trust"))
    else:
        yield Finding("walls", "ok", ", ".join(stand))
    if left_out:
        detail = (
            f"{', '.join(left_out)}: links that lead out of the folder, and files that are mostly "
        )
        detail += "holes, were not copied"
        yield Finding("links", "warn", printable(detail))


def judge(outcome: Outcome, folder: Folder) -> list[Finding]:
    """Return the verdict on each check of the list; fail at the first line that does not fit it."""
    findings, running, fault = [], "fresh process", None
    worth = RAN if outcome.walls and not any(outcome.walls.values()) else RAN_FREELY
    plan, *lines = outcome.lines or [None]
    contents = {file: folder.content(file) for file in OTHER_FILES}
    names = plan[1] if plan and plan[0] == "plan" else []
    if plan and not is_possible(names, folder.config, contents):
        names, fault = [], INTERFERED
    expected = [(name, step) for name in names for step in ("running", "verdict")]
    for line, (name, step) in zip(lines, expected, strict=False):
        verdicts = possible_verdicts(name, folder.config, contents, folder.path)
        if not fits(line, name, verdicts if step == "verdict" else (step,)):
            fault = INTERFERED
            break
        running = name
        if step == "verdict":
            rests_on = READ if name == TOKENIZER else worth
            findings.append(Finding(printable(name), line[1], printable(line[2]), rests_on))
            running = ""
    if fault is None and outcome.reason is None and (not names or len(lines) != len(expected)):
        fault = INTERFERED
    if fault or outcome.reason:
        detail = fault or how_it_ended(outcome)
        findings.append(Finding(printable(running or "fresh process"), "fail", detail, worth))
    return findings


def fits(line: object, name: str, verdicts: tuple[str, ...]) -> bool:
    return (
        isinstance(line, list)
        and len(line) == 3
        and line[0] == name
        and line[1] in verdicts
        and isinstance(line[2], str)
    )


def how_it_ended(outcome: Outcome) -> str:
    if outcome.reason == HANGS:
        return "no answer within the time allowed: allow more, if it is only large"
    if outcome.reason == INTERFERED:
        return INTERFERED
    message = outcome.stderr_last_line or "no message"
    return printable(f"the process died ({outcome.reason}): {message}")
