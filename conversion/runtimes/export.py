"""The result of an export to a runtime."""

from dataclasses import dataclass
from pathlib import Path

from .proof import Proof
from .runtime import Runtime


@dataclass(frozen=True)
class Export:
    """The folder that was made, its runtime, dtype and size, the time taken, and the proof.

    `proof` is None if none was asked for. `disagreements` are those of a conversion.
    """

    folder: Path
    runtime: Runtime
    dtype: str
    size: int  # bytes
    seconds: float
    proof: Proof | None
    disagreements: tuple[str, ...] = ()
