"""Name, create, replace and remove the folders of checkpoints."""

import contextlib
import re
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.storage import WriteResult

from .state import State
from .together import TogetherError, first_alone, joined_rank, reason, together
from .whole_files import describe, sync_folder, write_mark

PARTIAL = ".partial"
# The suffix of a complete checkpoint while another of the same step takes its place.
REPLACED = ".replaced"
WHOLE = re.compile(rf"checkpoint-\d+({re.escape(REPLACED)})?")
REST = re.compile(rf"checkpoint-\d+({re.escape(PARTIAL)}|{re.escape(REPLACED)})")


class CheckpointError(Exception):
    """The reason why a checkpoint was not saved or cannot be read, in one sentence."""


def newest_first(folder: Path) -> list[Path]:
    """Return the folders that have the name of a complete checkpoint, the newest first."""
    paths = folder.iterdir() if folder.is_dir() else ()
    found = [path for path in paths if WHOLE.fullmatch(path.name) and path.is_dir()]
    # Of two with one number, the replaced one comes second: its name is longer.
    return sorted(found, key=lambda path: (-number_of(path), path.name))


def number_of(path: Path) -> int:
    return int(path.name.removesuffix(REPLACED).removeprefix("checkpoint-"))


def renamed(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def rests_in(folder: Path) -> list[Path]:
    """Return the folders that killed runs left behind."""
    found = [path for path in folder.iterdir() if REST.fullmatch(path.name) and path.is_dir()]
    return [p for p in found if p.suffix == PARTIAL or p.with_suffix("").exists()]


class Writer(dcp.FileSystemWriter):
    """DCP's writer, which tells other processes the reason of the system if it fails."""

    def write_data(
        self, plan: dcp.SavePlan, planner: dcp.SavePlanner
    ) -> torch.futures.Future[list[WriteResult]]:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            raise TogetherError(reason(error)) from error


@dataclass
class Unfinished:
    """A checkpoint that is being written and does not count yet."""

    folder: Path
    step: int
    progress: dict[str, object]
    keep: int
    group: dist.ProcessGroup | None

    @property
    def final(self) -> Path:
        return self.folder / f"checkpoint-{self.step}"

    @property
    def path(self) -> Path:
        return renamed(self.final, PARTIAL)

    def make(self) -> None:
        """Create the folder, and remove what killed runs left."""

        def make() -> None:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in rests_in(self.folder):
                shutil.rmtree(path)
            self.path.mkdir()

        try:
            first_alone(make, self.group)
        except TogetherError as error:
            raise self.failure(error) from error

    def finish(self, state: State) -> None:
        """Write the checkpoint, and let it count once every process has written its part."""
        try:
            with without_warning():
                dcp.save(state, storage_writer=Writer(self.path), process_group=self.group)
            files = together(self.describe_own_files, self.group)
            first_alone(lambda: self.publish(files), self.group)
        except (dcp.CheckpointException, TogetherError) as error:
            with contextlib.suppress(TogetherError):
                first_alone(lambda: shutil.rmtree(self.path), self.group)
            raise self.failure(error) from error

    def describe_own_files(self) -> dict[str, list[int]]:
        """Describe this process's files, which bear its rank; the first also writes the index."""
        number = joined_rank()
        own = sorted(self.path.glob(f"__{number}_*"))
        return describe(own if number else [*own, self.path / ".metadata"])

    def publish(self, parts: list[dict[str, list[int]]]) -> None:
        files = {name: entry for part in parts for name, entry in part.items()}
        write_mark(self.path, files, {"step": self.step, "progress": self.progress})
        if self.final.exists():
            self.final.replace(renamed(self.final, REPLACED))
        self.path.replace(self.final)
        sync_folder(self.folder)
        self.remove_older_ones()

    def remove_older_ones(self) -> None:
        """Keep the newest `keep`; later steps stay, from a run that went back to an earlier one."""
        older = [path for path in newest_first(self.folder) if number_of(path) < self.step]
        for path in (*older[self.keep - 1 :], renamed(self.final, REPLACED)):
            with contextlib.suppress(OSError):  # the next save removes what is left
                path.replace(self.path)
                shutil.rmtree(self.path)

    def failure(self, error: BaseException) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint of step {self.step} was not saved in {self.folder} ({why(error)}): "
            "make room there, or choose a folder that all processes can write to; what was saved "
            "before is still there"
        )


def why(error: BaseException) -> str:
    """Return the reasons of all processes that failed, each once."""
    if isinstance(error, dcp.CheckpointException):
        return "; ".join(dict.fromkeys(reason(cause) for cause, _ in error.failures.values()))
    return str(error)


@contextlib.contextmanager
def without_warning() -> Iterator[None]:
    """Silence DCP's warning that there is no process group, which is right for one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is ")
        yield
