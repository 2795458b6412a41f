"""Let a folder's own model answer, behind walls, repaired where it no longer runs.

copy of the folder → probe.py in a fresh process → answers
    an error that a repair answers → repaired copy → once more
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from hf_tformer.checking.behind_walls import (
    HANGS,
    INTERFERED,
    Outcome,
    default_memory,
    run_behind_walls,
    temporary_folder,
)
from hf_tformer.checking.folder import CheckError
from hf_tformer.checking.fresh_process import KEEP_FILES, WEIGHTS, copy_folder
from hf_tformer.checking.permission import needed_walls, refuse_missing
from hf_tformer.path_safety import printable

from .repairs import Sources, repair

PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Limits:
    """How the code of a folder may run: for how long, in which interpreter, behind which walls."""

    timeout: float
    without_walls: bool = False
    run_anyway: bool = False
    python: Path | None = None  # None for the one that runs this


@dataclass
class Answers:
    """The answers of a model: `error` is why there are none, `generate_error` why no text."""

    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    versions: str = ""
    error: str = ""
    generate_error: str = ""


@dataclass
class Witness:
    """The answers of a folder's own code, the sources that gave them, and each repair of them."""

    answers: Answers
    sources: Sources
    repairs: list[str]


def witness(
    path: Path, auto: str, prompts: list[list[int]], how: str, sources: Sources, limits: Limits
) -> Witness:
    """Return the answers of a folder, whose code is repaired as long as a repair answers its error.

    `how` is "built" or "opened": see probe.py.
    """
    repairs: list[str] = []
    last: Witness | None = None
    while True:
        answers = ask(path, auto, prompts, how, sources, limits)
        current = Witness(answers, sources, list(repairs))
        fault = answers.error or answers.generate_error
        repaired = repair(sources, fault) if fault else None
        if repaired is not None and repaired.sentence in repairs:
            repaired = None  # it did not help
        if answers.error and last is not None:
            return last  # what let it generate was no repair
        if repaired is None:
            return current
        if not answers.error:
            last = current
        sources = repaired.sources
        repairs.append(repaired.sentence)


def ask(
    path: Path, auto: str, prompts: list[list[int]], how: str, sources: Sources, limits: Limits
) -> Answers:
    """Run a folder, with these sources in place of its own, in a fresh process behind walls.

    Large files are linked in place of copied where walls keep them from being changed.
    """
    words = [auto, how, json.dumps(prompts)]
    answers = asked(path, words, sources, limits, link_large=not limits.without_walls)
    return answers or asked(path, words, sources, limits, link_large=False) or Answers()


def asked(
    path: Path, words: list[str], sources: Sources, limits: Limits, link_large: bool
) -> Answers | None:
    """Return the answers; None if nothing was started, as no wall keeps the linked files."""
    with temporary_folder() as temporary:
        copy, work = temporary / "copy" / "folder", temporary / "work"
        file = temporary / "answers.safetensors"
        file.touch()
        work.mkdir()
        linked, _ = copy_folder(path, copy, link_large)
        for name, source in sources.items():
            Path(copy, name).write_text(source, encoding="utf-8")
        needed = needed_walls(copy, limits.without_walls)
        weights = [one for one in copy.iterdir() if one.suffix in WEIGHTS]
        outcome = run_behind_walls(
            PROBE,
            [copy, file, *words],
            work=work,
            results=[file],
            timeout=limits.timeout,
            readable=[copy, *linked],
            memory=default_memory(sum(one.stat().st_size for one in weights)),
            needed={*needed, *(KEEP_FILES if linked else ())},
            python=limits.python,
        )
        refuse_missing(outcome, needed)
        if linked and any(outcome.walls.get(name, "gone") for name in KEEP_FILES):
            return None
        return heard(outcome, file)


def heard(outcome: Outcome, file: Path) -> Answers:
    answers = Answers()
    for line in outcome.lines:
        match line:
            case ["versions", str(ours), str(torchs)]:
                answers.versions = printable(f"transformers {ours}, torch {torchs}")
            case ["error", str(message), str(place)]:
                answers.error = printable(f"{message} ({place})" if place else message)
            case ["generate", str(message)]:
                answers.generate_error = printable(message)
            case _:
                raise CheckError(INTERFERED)
    if outcome.reason:
        last = f"{outcome.reason}: {outcome.stderr_last_line or 'no message'}"
        why = "it took longer than --timeout allows" if outcome.reason == HANGS else last
        answers.error = answers.error or printable(why)
    if not answers.error:
        try:
            answers.tensors = load_file(file)
        except (OSError, SafetensorError, KeyError) as error:
            answers.error = printable(f"its code left no answers that can be read: {error}")
    return answers
