"""Compare the answers of a folder with those that it gives with the installed package's code.

    copy of the folder         → a fresh process behind walls (probe_heads.py) → answers ┐
    the same with today's code → another one                                   → answers ┴→ compared

The answers are compared in this process, so code can only pass by answering correctly.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from ..path_safety import printable
from .behind_walls import HANGS, INTERFERED, default_memory, run_behind_walls
from .folder import CheckError, Folder
from .fresh_process import KEEP_FILES, WEIGHTS, copy_folder
from .package_code import obsolete_code, stage_with_package_code
from .permission import needed_walls, refuse_missing

PROBE = Path(__file__).with_name("probe_heads.py")
TOLERANCE = 1e-5  # of the scale of an answer


@dataclass
class Answers:
    """The answers of one folder, by "head/question: name"; `errors` are by "head/question"."""

    heads: list[str] = field(default_factory=list)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """The heads that were compared, and the first difference, or None if all agree."""

    heads: list[str]
    difference: str | None


class UnprotectedError(Exception):
    """Raised where no wall keeps the code from writing through links."""


def compare_with_package(folder: Folder, timeout: float, without_walls: bool = False) -> Comparison:
    """Run the folder's code and the package's, each for at most `timeout` seconds, and compare.

    A CheckError says why there is nothing to compare. Large files are linked instead of copied if
    walls protect them.
    """
    try:
        return compare_copies(folder, timeout, without_walls, link_large=True)
    except UnprotectedError:
        return compare_copies(folder, timeout, without_walls, link_large=False)


def compare_copies(
    folder: Folder, timeout: float, without_walls: bool, link_large: bool
) -> Comparison:
    with tempfile.TemporaryDirectory() as temporary:
        old, new = Path(temporary, "old", folder.path.name), Path(temporary, "new")
        linked, _ = copy_folder(folder.path, old, link_large)
        copied = Folder(old)
        new.mkdir()
        stage_with_package_code(copied, new, obsolete_code(copied))
        before = ask(old, [], linked, timeout, without_walls)
        if failed := next((name for name in before.errors if name.endswith("/loading")), None):
            raise CheckError(
                f"{failed.partition('/')[0]} does not open with the folder's own code "
                f"({before.errors[failed]}), so nothing shows that other code answers the same: "
                "try it with the transformers and torch that the folder was saved with"
            )
        after = ask(new, [old], linked, timeout, without_walls)
    return Comparison(before.heads, next(differences(before, after), None))


def ask(
    folder: Path, others: list[Path], linked: list[Path], timeout: float, without_walls: bool
) -> Answers:
    """Run the heads of a folder in a fresh process, which may also read `others`.

    It reads files of the user that are `linked` only behind walls.
    """
    with tempfile.TemporaryDirectory() as temporary:
        file, work = Path(temporary, "answers.safetensors"), Path(temporary, "work")
        file.touch()
        work.mkdir()
        weights = [path for path in folder.iterdir() if path.suffix in WEIGHTS]
        must_stand = needed_walls(folder, without_walls)
        needed = {*must_stand, *(KEEP_FILES if linked else ())}
        outcome = run_behind_walls(
            PROBE,
            [str(folder), str(file)],
            work=work,
            results=[file],
            timeout=timeout,
            readable=[folder, *others, *linked],
            memory=default_memory(sum(path.stat().st_size for path in weights)),
            needed=needed,
        )
        refuse_missing(outcome, must_stand)
        if any(outcome.walls.get(name, "gone") for name in needed):
            raise UnprotectedError
        answers = Answers()
        for line in outcome.lines:
            match line:
                case ["head", str(head)]:
                    answers.heads.append(printable(head))
                case ["error", str(head), str(question), str(message)]:
                    answers.errors[printable(f"{head}/{question}")] = printable(message)
                case _:
                    raise CheckError(INTERFERED)
        if outcome.reason:
            at = answers.heads[-1] if answers.heads else "starting"
            why = "it took longer than allowed" if outcome.reason == HANGS else outcome.reason
            raise CheckError(f"the process that runs its code died at {at}: {why}")
        try:
            answers.tensors = load_file(file)
        except (OSError, SafetensorError, KeyError) as error:  # KeyError: a type unknown to numpy
            raise CheckError(f"its code left no answers that can be read: {error}") from error
    return answers


def differences(before: Answers, after: Answers) -> Iterator[str]:
    """Yield a sentence on each answer that differs."""
    for head in before.heads:
        if f"{head}/loading" in after.errors:
            yield f"{head} does not open ({after.errors[f'{head}/loading']})"
            continue
        names = [name for name in {**before.errors, **after.errors} if name.startswith(f"{head}/")]
        for name in names:
            was, is_now = (answers.errors.get(name, "an answer") for answers in (before, after))
            if was != is_now:
                yield f"{head}, asked for {name.partition('/')[2]}: {was} became {is_now}"
        for name in {**before.tensors, **after.tensors}:
            if name.startswith(f"{head}/") and (change := difference(name, before, after)):
                yield f"{head}, asked for {name.partition('/')[2]}: {change}"


def difference(name: str, before: Answers, after: Answers) -> str | None:
    one, other = before.tensors.get(name), after.tensors.get(name)
    if one is None or other is None:
        return "only one of the two answers"
    if one.shape != other.shape:
        return f"shape {list(one.shape)} became {list(other.shape)}"
    if np.array_equal(one, other):
        return None
    if not np.issubdtype(one.dtype, np.floating):
        return f"{np.count_nonzero(one != other)} of {one.size} are others"
    scale = max(float(np.abs(one).max()), 1e-6)
    by = float(np.abs(one - other).max()) / scale
    return None if by <= TOLERANCE else f"they differ by {by:.1e} of their scale"  # NaN differs
