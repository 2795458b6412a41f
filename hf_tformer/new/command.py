"""`tformer new`: writes a folder with a model of one's own kind."""

import sys

from ..command_line import Parser
from ..path_safety import printable
from .writing import BY_NAME, NewError, model_type_of, write_new


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Write a folder with a model of your own kind: our plain files, and three of "
        "about thirty lines that change one thing and test it.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="new or empty; Python imports it by name")
    parser.add_argument("--family", choices=BY_NAME, required=True, help="what it is built on")
    parser.add_argument("--name", required=True, help="what its classes begin with: MyModel")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer new") -> int:
    """The exit status is 1 where nothing was written."""
    args = build_parser(prog).parse_args(arguments)
    try:
        files = write_new(args.folder, args.family, args.name)
    except NewError as error:
        print(f"error: {printable(error)}", file=sys.stderr)
        return 1
    own = model_type_of(args.name)
    print(f"{len(files)} files in {printable(args.folder)}; yours to change:")
    print(f"configuration_{own}.py\nmodeling_{own}.py\ntest_{own}.py")
    print(f"try it: python -m pytest {printable(args.folder)}")
    return 0
