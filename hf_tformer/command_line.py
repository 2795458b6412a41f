"""The parser of every command, which also says what a mistyped word may have meant."""

import argparse
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NoReturn

# argparse's own words, for a choice (a command is one, too). Where they change, only the suggestion
# is lost.
NO_SUCH_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<choices>.*)\)")
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


class Parser(argparse.ArgumentParser):
    """argparse's, with suggestions."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace=None):
        """Whatever is not known is an error of the command that it was given to."""
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
    close = get_close_matches(word, set(known), n=1)
    return f" - did you mean {close[0]}?" if close else ""
