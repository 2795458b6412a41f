"""What all commands share: the parser, the arguments that several have, the way they fail."""

import argparse
import contextlib
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NoReturn

from .path_safety import printable

# argparse's own words, for a choice (a command is one, too). Where they change, only the suggestion
# is lost.
NO_SUCH_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<choices>.*)\)")
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


class Parser(argparse.ArgumentParser):
    """argparse's parser, which also suggests the right spelling of a mistyped word."""

    def add_source(
        self, revision: str = "branch, tag or commit of the repository", nargs: str | None = None
    ) -> None:
        """Add the arguments that name a model; `revision` is the help of the last one."""
        help = "model folder, or repository on the Hub as user/name"
        self.add_argument("source", metavar="FOLDER_OR_REPO", help=help, nargs=nargs)
        self.add_argument("--revision", help=revision)

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Report unknown arguments as an error of the command that they were given to."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = OPTION.findall(self.format_help())
            word = unknown[0].partition("=")[0]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{did_you_mean(word, options)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        if found := NO_SUCH_CHOICE.search(message):
            choices = re.findall(r"[\w.-]+", found["choices"])
            message += did_you_mean(found["word"], choices)
        super().error(message)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error that suggests the closest known word, or "" where none is."""
    close = get_close_matches(word, set(known), n=1)
    return f" - did you mean {close[0]}?" if close else ""


def print_error(error: Exception, status: int = 1) -> int:
    """Print on stderr why a command failed; return its exit status."""
    print(f"error: {printable(error)}", file=sys.stderr)
    return status


class PrintableRecord(logging.LogRecord):
    """A line of any library's log, which may quote what a stranger wrote, fit for a terminal."""

    def getMessage(self) -> str:  # noqa: N802 (the name that `logging` calls)
        return "\n".join(map(printable, super().getMessage().split("\n")))


@contextlib.contextmanager
def printable_logs() -> Iterator[None]:
    """Let nothing that libraries log move the cursor of the terminal or clear it."""
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(PrintableRecord)
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)
