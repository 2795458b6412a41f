"""An export: what was made for which runtime, and what was proven of it."""

from dataclasses import dataclass
from pathlib import Path

from .proof import Proof
from .runtime import Runtime


@dataclass(frozen=True)
class Export:
    """What was done: where it lies, for what, how large it is, how long it took, what was proven.

    `proof` is None where nobody asked for one. `disagreements` are as those of a conversion.
    """

    folder: Path
    runtime: Runtime
    dtype: str
    size: int  # bytes
    seconds: float
    proof: Proof | None
    disagreements: tuple[str, ...] = ()
