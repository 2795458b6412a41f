"""Determine which rows each step of a training takes, as a pure function without state."""

import functools
import hashlib
from dataclasses import dataclass

import torch

from .errors import TrainingError


@dataclass(frozen=True)
class RowOrder:
    """Rows 0 to `rows` - 1, `rows_per_step` of them at each step, shuffled anew for each epoch.

    The order does not depend on the number of processes or of loading workers. The last step of an
    epoch is omitted if it would lack rows. The order of one epoch is held in memory, 4 or 8 bytes
    per row.
    """

    rows: int
    rows_per_step: int
    seed: int

    def __post_init__(self) -> None:
        if self.rows_per_step < 1:
            raise TrainingError(f"rows_per_step is {self.rows_per_step}: a step takes at least one")
        if self.rows < self.rows_per_step:
            raise TrainingError(
                f"there are {self.rows} rows and a step takes {self.rows_per_step}: give more "
                "text, shorter rows, or fewer rows per step"
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.rows // self.rows_per_step

    def step(self, n: int) -> list[int]:
        """Return the rows of the n-th step of the run, counted from 0."""
        epoch, place = divmod(n, self.steps_per_epoch)
        start = place * self.rows_per_step
        return shuffle(self.rows, self.seed, epoch)[start : start + self.rows_per_step].tolist()


@functools.lru_cache(maxsize=1)
def shuffle(rows: int, seed: int, epoch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(mixed_seed(seed, epoch))
    dtype = torch.int32 if rows < 2**31 else torch.int64
    return torch.randperm(rows, generator=generator, dtype=dtype)


def mixed_seed(*numbers: int) -> int:
    """Hash several numbers to one seed, which is unrelated to that of any other numbers."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
