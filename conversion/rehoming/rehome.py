"""Make a folder that opens today of one with code of others: the first of three ways that agrees.

reading as `check` reads → the old code answers, behind walls, in --with or in this interpreter
    1. a class of transformers   ┐
    2. one of our families       ├ written, opened in a fresh process, its answers compared
    3. its own code, repaired    ┘
    → the first that agrees takes the name of the new folder; otherwise nothing is written
"""

import shutil
import subprocess
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from hf_tformer.checking.folder import CheckError, Folder
from hf_tformer.checking.fresh_process import TIMEOUT
from hf_tformer.checking.permission import refuse_dangerous

from ..engine.aliases import FilePath
from ..engine.checkpoints import write_checkpoint
from ..engine.destination import appearing
from ..engine.errors import ConversionError
from ..engine.models import unreported
from ..engine.side_files import SideFiles
from .candidate import Candidate, candidates
from .card import write_card
from .comparing import Agreement, compare
from .foreign_folder import ForeignFolder
from .rehomed import Rehomed
from .repairs import Sources, built_in_memory, diff
from .side_files import carry_everything, carry_tokenizer_code
from .witness import Answers, Limits, Witness, ask, witness


def rehome(
    folder: FilePath,
    new: FilePath,
    *,
    python: FilePath | None = None,
    timeout: float = TIMEOUT,
    without_walls: bool = False,
    run_anyway: bool = False,
) -> Rehomed:
    """Make `new` of a folder with code of others; say what it became and what proves it.

    `python` is an interpreter whose transformers still runs the old code. Code that looks dangerous
    is not run, unless `run_anyway`; where walls are missing it only runs `without_walls`.
    """
    started = time.monotonic()
    foreign = ForeignFolder(existing(folder))
    limits = Limits(timeout, without_walls, run_anyway, interpreter(python))
    size = sum(map(foreign.checkpoint.nbytes, foreign.checkpoint.names()))
    with appearing(new, foreign.path, size) as staged:
        try:
            move = Move(foreign, staged, limits)
            done = move.by_renaming() or move.by_repair()
        except CheckError as error:
            raise ConversionError(str(error)) from error
        done.folder, done.notes = Path(new), [*move.tried, *done.notes]
        done.seconds = time.monotonic() - started
        write_card(staged, foreign.path, done)
    return done


def existing(folder: FilePath) -> Path:
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ConversionError(
            f"{folder} is no folder: give one that holds config.json and code, or run `hf download "
            f"{folder} --local-dir {path.name}` first if it is on the Hub"
        )
    return path.resolve()


def interpreter(python: FilePath | None) -> Path | None:
    if python is None:
        return None
    path = Path(python).expanduser().absolute()  # a link to Python says which environment it is of
    asked = [str(path), "-I", "-c", HAS_WHAT_IS_NEEDED]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        found = ""
    if found != "True":
        reason = "lacks torch or transformers" if found else "is no Python interpreter"
        raise ConversionError(f"--with {python} {reason}: give one that has both")
    return path


HAS_WHAT_IS_NEEDED = """
from importlib.util import find_spec
print(all(find_spec(name) for name in ("torch", "transformers", "safetensors")))
"""


@dataclass(frozen=True)
class Old:
    """The old code's answers; `why_not` says why there are none, `forbidden` if it may not run."""

    witness: Witness | None = None
    why_not: str = ""
    forbidden: bool = False


@dataclass
class Move:
    """One folder on its way; `tried` are sentences on what was not taken."""

    foreign: ForeignFolder
    staged: Path
    limits: Limits
    tried: list[str] = field(default_factory=list)

    @cached_property
    def here(self) -> Limits:
        """The limits of the new folder, which this interpreter has to open."""
        return replace(self.limits, python=None)

    @cached_property
    def old(self) -> Old:
        """Let the old code answer, if it may run and does."""
        try:
            remedy = "say --run-anyway to run it behind the walls"
            run_anyway = self.limits.run_anyway
            refuse_dangerous(Folder(self.foreign.path), remedy, run_anyway=run_anyway)
            seen = self.witness(self.foreign.path, "built", self.limits)
        except CheckError as error:
            return Old(why_not=str(error), forbidden=True)
        if seen.answers.error:
            place = seen.answers.versions or "the interpreter"
            return Old(why_not=f"the old code does not run in {place}: {seen.answers.error}")
        return Old(seen)

    def witness(self, path: Path, how: str, limits: Limits) -> Witness:
        foreign = self.foreign
        return witness(path, foreign.auto, foreign.prompts, how, foreign.sources, limits)

    def ask(self, how: str, sources: Sources) -> Answers:
        foreign = self.foreign
        return ask(self.staged, foreign.auto, foreign.prompts, how, sources, self.here)

    def by_renaming(self) -> Rehomed | None:
        """Fill the first class that gives the old answers, or that opens if there are none."""
        for one in candidates(self.foreign):
            if isinstance(one, str):
                self.tried.append(f"not taken: {one}")
                continue
            try:
                notes = self.write(one)
            except ConversionError as error:
                self.tried.append(f"not taken: {one.name}, {error}")
                empty(self.staged)
                continue
            agreement = self.agreement(self.ask("opened", {}))
            if not agreement.fault:
                # Afterwards: a class of transformers is opened without any code beside it.
                notes += carry_tokenizer_code(self.foreign, self.staged)
                return self.judged(f"{one.name} of {one.library}", agreement, notes=notes)
            self.tried.append(f"not taken: {one.name}, {agreement.fault}")
            empty(self.staged)
        return None

    def write(self, one: Candidate) -> list[str]:
        """Write a folder of a class; return sentences on what was left out."""
        with unreported():  # AutoTokenizer warns of a model_type that it does not know
            side_files = SideFiles(self.foreign.path, one.model, None)
        one.write(self.staged, self.foreign.checkpoint)
        return [*one.omitted(self.foreign), *side_files.save(self.staged)]

    def by_repair(self) -> Rehomed:
        """Carry its own code, with the repairs without which from_pretrained does not open it."""
        if self.old.forbidden:
            raise self.refused(self.old.why_not)
        checkpoint = self.foreign.checkpoint
        carry_everything(self.foreign, self.staged)
        write_checkpoint(self.staged, ((n, checkpoint.read(n)) for n in checkpoint.names()))
        seen = self.opened_as_built()
        agreement = self.agreement(seen.answers)
        if agreement.fault:
            raise self.refused(f"its own code: {agreement.fault}")
        for name, source in seen.sources.items():
            Path(self.staged, name).write_text(source, encoding="utf-8")
        changes = diff(self.foreign.sources, seen.sources)
        return self.judged("its own code", agreement, repairs=seen.repairs, diff=changes)

    def opened_as_built(self) -> Witness:
        """Return what from_pretrained opens, which must be what the code makes by itself."""
        seen = self.witness(self.staged, "opened", self.here)
        repaired = built_in_memory(seen.sources)
        if seen.answers.error or repaired is None:
            return seen
        built = self.ask("built", seen.sources)
        if built.error or not compare(built, seen.answers).fault:
            return seen
        answers = self.ask("opened", repaired.sources)
        return Witness(answers, repaired.sources, [*seen.repairs, repaired.sentence])

    def agreement(self, new: Answers) -> Agreement:
        if self.old.witness is None:
            return Agreement("", f"it does not open: {new.error}" if new.error else "")
        return compare(self.old.witness.answers, new)

    def judged(self, became: str, agreement: Agreement, **more: list[str] | str) -> Rehomed:
        """Return the result, with what agrees with the old code, and where that ran."""
        done = Rehomed(self.staged, became, **more)  # type: ignore[arg-type]
        seen = self.old.witness
        if seen is None:
            done.not_proven = self.old.why_not
        elif done.repairs and seen.repairs and self.limits.python is None:
            done.not_proven = (
                f"the old code needs repairs in {seen.answers.versions}: name an interpreter in "
                "which it runs by --with"
            )
        else:
            repaired = f", repaired ({'; '.join(seen.repairs)})" if seen.repairs else ""
            place = seen.answers.versions
            done.proof = f"{agreement.sentence}, beside its own code in {place}{repaired}"
        return done

    def refused(self, last: str) -> ConversionError:
        tried = [sentence.removeprefix("not taken: ") for sentence in self.tried]
        return ConversionError(f"{self.foreign.path} was not moved: {'; '.join([*tried, last])}")


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
