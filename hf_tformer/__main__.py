"""python -m hf_tformer check FOLDER_OR_REPO | publish FOLDER REPO_ID"""

import argparse
import sys

from . import checking


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m hf_tformer", description="Model folders.")
    commands = parser.add_subparsers(dest="command", required=True)
    add_check(commands)
    add_publish(commands)
    args = parser.parse_args(arguments)
    return args.run_command(args)


def add_check(commands):
    parser = commands.add_parser(
        "check", help="say what is wrong with a folder or repository that brings its own code"
    )
    checking.add_arguments(parser)
    parser.set_defaults(run_command=checking.main)


def add_publish(commands):
    parser = commands.add_parser("publish", help="publish a saved folder with its code and a card")
    parser.add_argument("folder", help="what save_pretrained wrote")
    parser.add_argument("repo_id", help="user/name on the Hub")
    parser.add_argument("--private", action="store_true", help="a repository only you can see")
    parser.add_argument("--revision", default="main", help="the branch, made where it is missing")
    parser.add_argument("--message", help="the commit's message")
    parser.add_argument("--license", default="apache-2.0", help="for the card")
    parser.add_argument("--description", help="for the card: a sentence on what it is for")
    parser.add_argument("--dry-run", action="store_true", help="list the files, send nothing")
    parser.add_argument("--no-verify", action="store_true", help="do not load it back")
    parser.set_defaults(run_command=run_publish)


def run_publish(args):
    from .publishing import PublishError, publish

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
    print("\n".join(published.files))
    if args.dry_run:
        print(f"{len(published.files)} files would go to {args.repo_id}; nothing was sent")
    else:
        checked = "not verified" if args.no_verify else "loaded back"
        print(f"commit {published.commit} ({checked})\n{published.url}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
