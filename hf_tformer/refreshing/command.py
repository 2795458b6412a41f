"""`tformer refresh`: print what `hf_tformer.refresh` did."""

import sys
from collections.abc import Iterator

from ..checking.fresh_process import TIMEOUT
from ..command_line import Parser, print_error
from ..path_safety import printable
from .api import refresh
from .renewal import Refreshed, RefreshError


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Replace the code in one of our checkpoints by that of the installed package. "
        "It is read first; old and new code then run behind walls: unless every head answers as "
        "before, nothing is written. Weights stay as they are.",
    )
    parser.add_source(revision="branch of the repository (default: main)")
    parser.set_defaults(revision="main")
    parser.add_argument("--dry-run", action="store_true", help="compare, and write nothing")
    help = "execute the code even if it looks dangerous"
    parser.add_argument("--run-anyway", action="store_true", help=help)
    help = "execute unknown code even where walls are missing, with all your rights"
    parser.add_argument("--without-walls", action="store_true", help=help)
    help = f"seconds for each of the old and the new code (default: {TIMEOUT})"
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help=help)
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer refresh") -> int:
    """Return the exit status: 1 where the answers differ, the code looks dangerous or writing
    failed, 2 where there was no code of ours to renew, or a wall is missing."""
    args = build_parser(prog).parse_args(arguments)
    print(f"comparing the code of {printable(args.source)} with today's ...", file=sys.stderr)
    try:
        refreshed = refresh(
            args.source,
            dry_run=args.dry_run,
            revision=args.revision,
            timeout=args.timeout,
            without_walls=args.without_walls,
            run_anyway=args.run_anyway,
        )
    except RefreshError as error:
        return print_error(error, status=2 if error.unsuitable else 1)
    print("\n".join(map(printable, report_lines(refreshed, args.dry_run))))
    return 0


def report_lines(refreshed: Refreshed, dry_run: bool) -> Iterator[str]:
    width = max((len(change.file) for change in refreshed.changes), default=0)
    for change in refreshed.changes:
        before, after = (short(name) for name in (change.before, change.after))
        yield f"{change.file:<{width}}  {before} → {after}"
    if refreshed.left:
        yield f"left as they are, not ours: {', '.join(refreshed.left)}"
    yield from refreshed.notes
    if refreshed.heads:
        yield f"answers are equal: {', '.join(refreshed.heads)}"
    if not refreshed.changes:
        yield f"{refreshed.source} is current" + (", now pinned" if refreshed.written else "")
    elif dry_run:
        yield f"{len(refreshed.changes)} files would change; nothing was written"
    else:
        place = f"commit {refreshed.commit}" if refreshed.commit else refreshed.source
        yield f"{len(refreshed.changes)} files changed in {place}"


def short(digest: str | None) -> str:
    return digest[:8] if digest else "-" * 8
