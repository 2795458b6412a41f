"""`tformer new`: write a folder with a model of your own kind."""

from ..command_line import Parser, print_error
from ..path_safety import printable
from .writing import BY_NAME, NewError, model_type_of, write_new


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Write a folder with a model of your own kind: our model files, and three "
        "short ones that change one thing and test it.",
    )
    parser.add_argument(
        "folder", metavar="FOLDER", help="new or empty folder, which Python can import"
    )
    parser.add_argument(
        "--family", choices=BY_NAME, required=True, help="family that it is built on"
    )
    parser.add_argument("--name", required=True, help="beginning of its class names: MyModel")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer new") -> int:
    """Return the exit status: 1 where nothing was written."""
    args = build_parser(prog).parse_args(arguments)
    try:
        files = write_new(args.folder, args.family, args.name)
    except NewError as error:
        return print_error(error)
    own = model_type_of(args.name)
    print(f"{len(files)} files in {printable(args.folder)}; yours to change:")
    print(f"configuration_{own}.py\nmodeling_{own}.py\ntest_{own}.py")
    print(f"try it: python -m pytest {printable(args.folder)}")
    return 0
