"""The folders of checkpoints: how they are called, come to be, replace each other and go."""

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

from .state import State
from .together import TogetherError, first_alone, joined_rank, reason, together
from .whole_files import describe, sync_folder, write_mark

PARTIAL = ".partial"
# A whole one is called so while another of the same step takes its place.
REPLACED = ".replaced"
WHOLE = re.compile(rf"checkpoint-(\d+)({re.escape(REPLACED)})?")
REST = re.compile(rf"checkpoint-\d+({re.escape(PARTIAL)}|{re.escape(REPLACED)})")


class CheckpointError(Exception):
    """Why a checkpoint was not saved or cannot be read, in one sentence."""


def newest_first(folder: Path) -> list[Path]:
    """What is called like a whole checkpoint."""
    paths = folder.iterdir() if folder.is_dir() else ()
    found = [path for path in paths if WHOLE.fullmatch(path.name) and path.is_dir()]
    # Of two with one number, the replaced one comes second: its name is longer.
    return sorted(found, key=lambda path: (-number_of(path), path.name))


def number_of(path: Path) -> int:
    return int(WHOLE.fullmatch(path.name)[1])


def renamed(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def rests_in(folder: Path) -> list[Path]:
    """What killed runs left behind."""
    found = [path for path in folder.iterdir() if REST.fullmatch(path.name) and path.is_dir()]
    return [p for p in found if p.suffix == PARTIAL or p.with_suffix("").exists()]


class Writer(dcp.FileSystemWriter):
    """Other processes are told the system's reason, which is lost on the way to them otherwise."""

    def write_data(self, plan: dcp.SavePlan, planner: dcp.SavePlanner) -> torch.futures.Future:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            raise TogetherError(reason(error)) from error


@dataclass
class Unfinished:
    """A checkpoint that does not count yet."""

    folder: Path
    step: int
    progress: dict
    keep: int
    group: dist.ProcessGroup | None

    @property
    def final(self) -> Path:
        return self.folder / f"checkpoint-{self.step}"

    @property
    def path(self) -> Path:
        return renamed(self.final, PARTIAL)

    def make(self) -> None:
        """Makes its folder, and removes what killed runs left."""

        def make():
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in rests_in(self.folder):
                shutil.rmtree(path)
            self.path.mkdir()

        try:
            first_alone(make, self.group)
        except TogetherError as error:
            raise self.failure(error) from error

    def finish(self, state: State) -> None:
        """Writes it, and lets it count once every process has written its part."""
        try:
            with without_remark():
                dcp.save(state, storage_writer=Writer(self.path), process_group=self.group)
            files = together(self.describe_own_files, self.group)
            first_alone(lambda: self.publish(files), self.group)
        except (dcp.CheckpointException, TogetherError) as error:
            with contextlib.suppress(TogetherError):
                first_alone(lambda: shutil.rmtree(self.path), self.group)
            raise self.failure(error) from error

    def describe_own_files(self) -> dict[str, list[int]]:
        """DCP calls files by the number of the process; the first one also writes its index."""
        number = joined_rank()
        own = sorted(self.path.glob(f"__{number}_*"))
        return describe(own if number else [*own, self.path / ".metadata"])

    def publish(self, parts: list[dict]) -> None:
        files = {name: entry for part in parts for name, entry in part.items()}
        write_mark(self.path, files, {"step": self.step, "progress": self.progress})
        if self.final.exists():
            self.final.replace(renamed(self.final, REPLACED))
        self.path.replace(self.final)
        sync_folder(self.folder)
        self.remove_older_ones()

    def remove_older_ones(self) -> None:
        """Later ones stay: they are those of a run that went back to an earlier step."""
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
    """The reasons of all processes that failed, each once."""
    if isinstance(error, dcp.CheckpointException):
        return "; ".join(dict.fromkeys(reason(cause) for cause, _ in error.failures.values()))
    return str(error)


@contextlib.contextmanager
def without_remark() -> Iterator[None]:
    """DCP warns of what is meant so: that a lone process is alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is ")
        yield
