"""`tformer check`: prints what `hf_tformer.check` finds."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple

from ..command_line import Parser
from ..path_safety import printable
from .folder import CheckError
from .fresh_process import GIB, TIMEOUT
from .report import Finding, check


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Say what is wrong with a model folder or repository that brings its own code. "
        "Its code runs in a process of its own, on Linux behind walls; --no-run only reads it.",
    )
    parser.add_argument("source", metavar="FOLDER_OR_REPO", help="a model folder, or user/name")
    parser.add_argument("--revision", help="branch, tag or commit of a repository")
    parser.add_argument("--json", action="store_true", help="print a JSON list and nothing else")
    parser.add_argument("--no-run", action="store_true", help="read the code, do not execute it")
    parser.add_argument(
        "--run-anyway", action="store_true", help="execute it even where it looks dangerous"
    )
    parser.add_argument("--cache", help="where to keep a downloaded repository")
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT, help="seconds that its code may run"
    )
    parser.add_argument("--memory", type=float, help="GiB that it may take (default: by its size)")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer check") -> int:
    """The exit status is 1 where something failed, 2 where nothing could be checked."""
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
        )
    except CheckError as error:
        print(f"error: {printable(error)}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print("\n".join(report_lines(findings)))
    return int(any(finding.verdict == "fail" for finding in findings))


def report_lines(findings: list[Finding]) -> Iterator[str]:
    """One aligned line per finding, then the summary."""
    lines = [[printable(word) for word in astuple(finding)] for finding in findings]
    width = max((len(name) for name, _, _ in lines), default=0)
    for name, verdict, detail in lines:
        yield f"{verdict:<4}  {name:<{width}}  {detail}"
    yield summary(findings)


def summary(findings: Iterable[Finding]) -> str:
    count = Counter(finding.verdict for finding in findings)
    warnings = "1 warning" if count["warn"] == 1 else f"{count['warn']} warnings"
    return f"{count['ok']} ok, {warnings}, {count['fail']} failed, {count['skip']} skipped"
