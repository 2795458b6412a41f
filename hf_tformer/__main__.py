"""The command `tformer`, also `python -m hf_tformer`.

It knows the commands by name alone: a command's module is imported when the command is called.
`python -m` puts the current folder first on sys.path; __init__.py, which it imports before this
file, removes it.
"""

import importlib
import sys
from typing import NamedTuple

from . import __version__
from .command_line import Parser, printable_logs


class Command(NamedTuple):
    """A module whose `main(arguments, prog)` returns the exit status, and a line of help."""

    module: str
    help: str


COMMANDS = {
    "new": Command("hf_tformer.new.command", "begin a model of your own kind"),
    "check": Command("hf_tformer.checking.command", "find faults in a folder or repository"),
    "publish": Command("hf_tformer.publishing.command", "send a folder to the Hub, with a card"),
    "refresh": Command("hf_tformer.refreshing.command", "renew the code of a folder or repository"),
    "view": Command("hf_tformer.view.command", "show which token attends to which"),
    "plan": Command("hf_tformer.plan.command", "compute what training needs of each device"),
    "convert": Command("conversion.command", "convert from other formats, and back"),
    "prove": Command(
        "conversion.proving.command", "compare a file with the model it was made from"
    ),
    "rehome": Command(
        "conversion.rehoming.command", "open a folder with code of others as it opens today"
    ),
    "env": Command("hf_tformer.environment", "print what an issue report needs"),
}


def main(arguments: list[str] | None = None, prog: str = "tformer") -> int:
    """Run one command; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    chosen = build_parser(prog).parse_args(words[:1]).command
    command = importlib.import_module(COMMANDS[chosen].module)
    with printable_logs():
        return command.main(words[1:], prog=f"{prog} {chosen}")


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Begin, check, publish, refresh, view, plan, convert, prove and move models; "
        "describe the environment.",
        epilog=f"`{prog} COMMAND --help` lists the arguments of a command.",
    )
    parser.add_argument("--version", action="version", version=f"hf_tformer {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.help, add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(main())
