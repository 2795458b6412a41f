"""How the programs of this folder end, and how they read their options.

A foreseeable failure ends a program with one sentence, before anything is written.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hf_tformer.opening import OpeningError

if TYPE_CHECKING:
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer
    from transformers import Trainer
else:  # importing transformers takes seconds, and --help needs none of it
    Model = Tokenizer = Trainer = object

ONE_LINE = 400


class ProgramError(Exception):
    """Why a program ends, in one sentence that says what to do."""


def run(main: Callable[[], None]) -> None:
    """Run a program; a failure that it foresees is one sentence on stderr and exit status 1."""
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


def at_least(smallest: int) -> Callable[[str], int]:
    """Return the type of an option whose value must not be smaller."""

    def convert(text: str) -> int:
        value = int(text)
        if value < smallest:
            raise argparse.ArgumentTypeError(f"{text} is too small: give at least {smallest}")
        return value

    convert.__name__ = "int"  # argparse shows it where the text is no number
    return convert


def share(text: str) -> float:
    """Read the value of an option that is a part of the whole."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: give one between 0 and 1")
    return value


def positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


class Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Shows a docstring as it is written, and the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str:
        is_silent = action.default is None or action.default is False or "default:" in action.help
        return action.help if is_silent else super()._get_help_string(action)


def make_parser(description: str | None, usage: str = "[options]") -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        usage=f"%(prog)s {usage}  (--help lists them)",
        description=description,
        formatter_class=Help,
    )


@contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """End the program with what someone else's error says."""
    try:
        yield
    except errors as error:
        raise ProgramError(in_one_line(error)) from error
