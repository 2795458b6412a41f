"""`tformer rehome`: make a folder that opens today of one with code of others."""

import sys
from collections.abc import Iterator

from transformers.utils import logging

from hf_tformer.checking.fresh_process import TIMEOUT
from hf_tformer.command_line import Parser
from hf_tformer.path_safety import printable

from ..engine.errors import ConversionError
from .rehome import rehome
from .rehomed import Rehomed

STATUS = (
    "exit status: 0 if the new folder answers as the old code does, 1 if it was written but "
    "nothing could be compared, 2 if nothing was written"
)


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Make a folder that opens today of one that needs code of others: a class of "
        "transformers, one of our families, or its own code with the smallest repair. The code is "
        "read first and runs behind walls; the answers of both are compared.",
        epilog=STATUS,
    )
    parser.add_argument("folder", metavar="FOLDER", help="model folder with code in it")
    parser.add_argument("new", metavar="NEW", help="folder to write, which must not exist")
    help = "interpreter whose transformers still runs the old code (default: this one)"
    parser.add_argument("--with", dest="python", metavar="PYTHON", help=help)
    help = "execute the code even if it looks dangerous"
    parser.add_argument("--run-anyway", action="store_true", help=help)
    help = "execute the code even where walls are missing, with all your rights"
    parser.add_argument("--without-walls", action="store_true", help=help)
    help = f"seconds for each run of the code (default: {TIMEOUT})"
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help=help)
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer rehome") -> int:
    options = build_parser(prog).parse_args(arguments)
    logging.disable_progress_bar()
    try:
        done = rehome(
            options.folder,
            options.new,
            python=options.python,
            timeout=options.timeout,
            without_walls=options.without_walls,
            run_anyway=options.run_anyway,
        )
    except (ConversionError, OSError) as error:
        print(printable(" ".join(f"{prog}: {error}".split())), file=sys.stderr)
        return 2
    print("\n".join(map(printable, lines_of(done))))
    return 0 if done.is_proven else 1


def lines_of(done: Rehomed) -> Iterator[str]:
    yield f"{done.folder}: opens as {done.became} ({done.seconds:.0f} s)"
    yield f"proven: {done.proof}" if done.is_proven else f"not proven: {done.not_proven}"
    yield from (f"repaired: {sentence}" for sentence in done.repairs)
    yield from done.notes
    yield from done.diff.splitlines()
