"""How the programs of this folder end, and what their flags take.

What can be foreseen to go wrong ends a program with one sentence, before anything is written.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from hf_tformer.opening import OpeningError

ONE_LINE = 400


class ProgramError(Exception):
    """Why a program ends, in one sentence that says what to do."""


def run(main: Callable[[], None]) -> None:
    """Runs a program; a failure that it foresees is one sentence on stderr and exit status 1."""
    try:
        main()
    except (ProgramError, OpeningError) as error:
        print(f"{Path(sys.argv[0]).name}: {in_one_line(error)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"\n{Path(sys.argv[0]).name}: stopped", file=sys.stderr)
        sys.exit(130)


def in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:ONE_LINE]


def at_least(smallest: float, kind: type = int) -> Callable[[str], float]:
    """The type of a flag whose value must not be smaller."""

    def convert(text):
        value = kind(text)
        if value < smallest:
            raise argparse.ArgumentTypeError(f"{text} is too small: give at least {smallest}")
        return value

    convert.__name__ = kind.__name__  # argparse shows it where the text is no number
    return convert


def share(text: str) -> float:
    """The type of a flag that is a part of the whole."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: give one between 0 and 1")
    return value


def positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value
