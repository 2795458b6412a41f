"""`tformer publish`: `hf_tformer.publish` for a saved folder."""

import sys

from ..command_line import Parser
from ..path_safety import printable
from .upload import PublishError, publish


def build_parser(prog: str) -> Parser:
    parser = Parser(prog=prog, description="Publish a saved folder with its code and a card.")
    parser.add_argument("folder", metavar="FOLDER", help="what save_pretrained wrote")
    parser.add_argument("repo_id", metavar="REPO_ID", help="user/name on the Hub")
    parser.add_argument("--private", action="store_true", help="a repository only you can see")
    parser.add_argument("--revision", default="main", help="the branch, made where it is missing")
    parser.add_argument("--message", help="the commit's message")
    parser.add_argument("--license", default="apache-2.0", help="for the card")
    parser.add_argument("--description", help="for the card: a sentence on what it is for")
    parser.add_argument("--dry-run", action="store_true", help="list the files, send nothing")
    parser.add_argument("--no-verify", action="store_true", help="do not load it back")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer publish") -> int:
    """The exit status is 1 where nothing was published, or not all of it."""
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
            license=args.license,
            description=args.description,
        )
    except PublishError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(map(printable, published.files)))
    if args.dry_run:
        print(f"{len(published.files)} files would go to {args.repo_id}; nothing was sent")
    else:
        checked = "not verified" if args.no_verify else "loaded back"
        print(f"commit {published.commit} ({checked})\n{published.url}")
    return 0
