"""`tformer publish`: publish a saved folder with `hf_tformer.publish`."""

from ..command_line import Parser, print_error
from ..path_safety import printable
from .upload import PublishError, publish


def build_parser(prog: str) -> Parser:
    parser = Parser(prog=prog, description="Publish a saved folder with its code and a card.")
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="folder that save_pretrained wrote")
    add("repo_id", metavar="REPO_ID", help="repository on the Hub, as user/name")
    add("--private", action="store_true", help="make a repository that only you can see")
    add("--revision", default="main", help="branch, created where it is missing (default: main)")
    add("--message", help="message of the commit")
    add("--license", default="apache-2.0", help="license in the card (default: apache-2.0)")
    add("--description", help="sentence in the card that says what the model is for")
    add("--dry-run", action="store_true", help="list the files and send nothing")
    help = "skip reading the code and loading the repository back"
    add("--no-verify", action="store_true", help=help)
    help = "load unknown code back even where walls are missing, with all your rights"
    add("--without-walls", action="store_true", help=help)
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer publish") -> int:
    """Return the exit status: 1 where nothing was published, or not all of it."""
    args = build_parser(prog).parse_args(arguments)
    try:
        published = publish(
            args.folder,
            args.repo_id,
            private=args.private,
            revision=args.revision,
            message=args.message,
            dry_run=args.dry_run,
            verify=not args.no_verify,
            without_walls=args.without_walls,
            license=args.license,
            description=args.description,
        )
    except PublishError as error:
        return print_error(error)
    left_out = (f"left out: {name}" for name in published.left_out)
    print("\n".join(map(printable, [*published.files, *left_out])))
    if args.dry_run:
        print(f"{len(published.files)} files would go to {args.repo_id}; nothing was sent")
    else:
        checked = "not verified" if args.no_verify else "loaded back"
        print(f"commit {published.commit} ({checked})\n{published.url}")
    return 0
