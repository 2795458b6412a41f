"""What became of a folder with code of others."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Rehomed:
    """The result of moving a folder.

    `became` says what opens it now. `proof` is a sentence on what agrees with the old code; it is
    empty where nothing could be compared, and `not_proven` then says why. `notes` are sentences on
    what was tried or left out, `repairs` and `diff` what was changed in its code.
    """

    folder: Path
    became: str
    proof: str = ""
    not_proven: str = ""
    notes: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    diff: str = ""
    seconds: float = 0.0

    @property
    def is_proven(self) -> bool:
        return bool(self.proof)
