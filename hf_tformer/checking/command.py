"""`tformer check`: print what `hf_tformer.check` finds."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from ..command_line import Parser, print_error
from ..path_safety import printable
from .findings import Finding, summary
from .folder import CheckError
from .fresh_process import GIB, TIMEOUT
from .report import check


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Find faults in a model folder or repository that brings its own code. The "
        "code runs in a process of its own, behind walls that need Linux; --no-run only reads it.",
    )
    parser.add_source()
    add = parser.add_argument
    add("--json", action="store_true", help="print a JSON list and nothing else")
    add("--no-run", action="store_true", help="read the code without executing it")
    add("--run-anyway", action="store_true", help="execute the code even if it looks dangerous")
    help = "execute unknown code even where walls are missing, with all your rights"
    add("--without-walls", action="store_true", help=help)
    add("--cache", help="folder that keeps a downloaded repository (default: a temporary one)")
    add("--timeout", type=float, default=TIMEOUT, help=f"seconds to run (default: {TIMEOUT})")
    add("--memory", type=float, help="GiB of memory to use (default: by the size of the weights)")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer check") -> int:
    """Return the exit status: 1 where a check failed, 2 where nothing could be checked, or the code
    was not run because walls are missing."""
    args = build_parser(prog).parse_args(arguments)
    try:
        findings = check(
            args.source,
            args.revision,
            not args.no_run,
            cache=args.cache,
            timeout=args.timeout,
            memory=None if args.memory is None else int(args.memory * GIB),
            run_anyway=args.run_anyway,
            without_walls=args.without_walls,
        )
    except CheckError as error:
        return print_error(error, status=2)
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print("\n".join(report_lines(findings)))
    failed = {finding.name for finding in findings if finding.verdict == "fail"}
    return 2 if failed == {"walls"} else int(bool(failed))


def report_lines(findings: list[Finding]) -> Iterator[str]:
    """Yield one aligned line per finding, then the summary."""
    width = max((len(printable(finding.name)) for finding in findings), default=0)
    for finding in findings:
        name, detail = printable(finding.name), printable(finding.detail)
        yield f"{finding.verdict:<4}  {name:<{width}}  {finding.rests_on:<16}  {detail}"
    yield summary(findings)
