"""`tformer check`: print what `hf_tformer.check` finds."""

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from ..command_line import Parser, print_error
from ..path_safety import printable
from .findings import Finding, exit_status, summary
from .folder import CheckError
from .fresh_process import GIB, TIMEOUT
from .report import check
from .sarif import sarif_of

STATUS = (
    "exit status: 0 if nothing failed, 1 if a check failed, 2 if the folder could not be judged, "
    "3 if reading found something dangerous"
)
LARGEST = 1 << 20  # bytes of a config.json; what is cut off cannot be read, and is checked
OF_MODELS = ("model_type", "architectures", "auto_map")  # keys of a config.json


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Find faults in a model folder or repository that brings its own code. The "
        "code runs in a process of its own, behind walls that need Linux; --no-run only reads it.",
        epilog=STATUS,
    )
    parser.add_source(nargs="?")
    add = parser.add_argument
    help = "check the model folders that these files are in, each with its config.json"
    add("--changed", nargs="*", metavar="FILE", help=help)
    help = "file with the names of such files, each ended by a zero byte, as of git diff -z"
    add("--changed-from", metavar="FILE", help=help)
    add("--json", action="store_true", help="print JSON with all findings and nothing else")
    add("--sarif", metavar="FILE", help="file for all faults, which code scanning reads")
    add("--no-run", action="store_true", help="read the code without executing it")
    add("--run-anyway", action="store_true", help="execute the code even if it looks dangerous")
    help = "execute unknown code even where walls are missing, with all your rights"
    add("--without-walls", action="store_true", help=help)
    add("--cache", help="folder that keeps a downloaded repository (default: a temporary one)")
    help = f"seconds to read, and to run (default: {TIMEOUT})"
    add("--timeout", type=float, default=TIMEOUT, help=help)
    add("--memory", type=float, help="GiB of memory to use (default: by the size of the weights)")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer check") -> int:
    """Return the exit status: the highest of all folders, see `STATUS`."""
    parser = build_parser(prog)
    args = parser.parse_args(arguments)
    if args.changed_from is not None:
        names = Path(args.changed_from).read_bytes().decode("utf-8", "surrogateescape")
        args.changed = [*(args.changed or ()), *filter(None, names.split("\0"))]
    if (args.source is None) == (args.changed is None):
        parser.error("give a folder, a repository, or --changed FILE ...")
    sources = [args.source] if args.source is not None else model_folders(args.changed)
    found, status = {}, 0
    for source in sources:
        try:
            found[source] = checked(source, args)
        except CheckError as error:
            found[source] = [Finding("folder", "fail", f"not judged: {error}")]
            status = max(status, print_error(error, status=2))
            continue
        status = max(status, exit_status(found[source]))
        if not args.json:
            heading = [f"{printable(source)}:"] if args.changed else []
            print("\n".join([*heading, *report_lines(found[source])]))
    if args.json:
        content = {name: [asdict(one) for one in findings] for name, findings in found.items()}
        print(json.dumps(content if args.changed is not None else content[args.source], indent=1))
    if args.sarif:
        Path(args.sarif).write_text(json.dumps(sarif_of(found), indent=1), encoding="utf-8")
    return status


def checked(source: str, args: Namespace) -> list[Finding]:
    return check(
        source,
        args.revision,
        not args.no_run,
        cache=args.cache,
        timeout=args.timeout,
        memory=None if args.memory is None else int(args.memory * GIB),
        run_anyway=args.run_anyway,
        without_walls=args.without_walls,
    )


def model_folders(files: Iterable[str]) -> list[str]:
    """Return the folders below the current one that hold a model and one of these files."""
    here = Path.cwd()
    parents = {
        parent
        for file in files
        for parent in Path(here, file).absolute().parents
        if parent.is_relative_to(here)
    }
    folders = sorted(parent for parent in parents if holds_model(parent))
    return [folder.relative_to(here).as_posix() for folder in folders]


def holds_model(folder: Path) -> bool:
    """Return whether a folder has a model's config.json, or one that nobody can read."""
    if not (folder / "config.json").is_file():
        return False
    try:
        config = json.loads((folder / "config.json").read_bytes()[:LARGEST])
    except (ValueError, RecursionError):
        return True
    return isinstance(config, dict) and any(key in config for key in OF_MODELS)


def report_lines(findings: list[Finding]) -> Iterator[str]:
    """Yield an aligned line for each finding, one for all checks that are skipped for the same
    reason, and the summary."""
    width = max((len(printable(finding.name)) for finding in findings), default=0)
    lines: dict[str | int, list[Finding]] = {}
    for number, finding in enumerate(findings):
        line = finding.detail if finding.verdict == "skip" else number
        lines.setdefault(line, []).append(finding)
    for first, *others in lines.values():
        name, detail = printable(first.name), printable(first.detail)
        if others:
            detail = f"{detail} ({', '.join([name, *(printable(one.name) for one in others)])})"
            name = f"{len(others) + 1} checks"
        yield f"{first.verdict:<4}  {name:<{width}}  {first.rests_on:<16}  {detail}"
    yield summary(findings)
