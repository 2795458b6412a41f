"""What a check found, and what its verdict is worth."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .files import few as shortened

# What a verdict rests on.
READ = "read"  # files, and answers that were sent before any code of the folder ran
RAN = "ran behind walls"  # the word of the interpreter that ran the folder's code
RAN_FREELY = "ran without walls"
NOT_UNDERSTOOD = "not understood"  # nothing, as reading cannot tell what this does: also a kind
# The checks after whose failure the code is not run, except with --run-anyway.
DANGERS = ("files", "foreign code", "syntax", "safety", "attention kernel")


@dataclass(frozen=True)
class Finding:
    """The result of one check; the verdict is "ok", "fail", "warn" or "skip"."""

    name: str
    verdict: str
    detail: str
    rests_on: str = READ
    places: tuple[str, ...] = ()  # all of them; the detail names the first


LISTED: list[str] = []  # what `few` was given for the finding that is being made


def few(names: Iterable[str]) -> str:
    """Return the first of many names as text, and note all of them as the finding's places."""
    LISTED.extend(names := list(names))
    return shortened(names)


def dangers(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings because of which the code is not run: dangers, and open questions."""
    return [f for f in findings if is_danger(f) or f.rests_on == NOT_UNDERSTOOD]


def is_danger(finding: Finding) -> bool:
    return finding.verdict == "fail" and finding.name in DANGERS


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 0 if nothing failed, 1 if a check did, 2 if the code could not be judged, and 3 if
    reading found something dangerous."""
    findings = list(findings)
    failed = {finding.name for finding in findings if finding.verdict == "fail"}
    if any(is_danger(finding) and finding.name != "syntax" for finding in findings):
        return 3
    if failed and failed != {"walls"}:
        return 1
    rests_on = {finding.rests_on for finding in findings}
    is_open = NOT_UNDERSTOOD in rests_on and rests_on.isdisjoint({RAN, RAN_FREELY})
    return 2 if failed or is_open else 0


def summary(findings: Iterable[Finding]) -> str:
    """Return a sentence with the number of each verdict, and what they are worth."""
    findings = list(findings)
    count = Counter(finding.verdict for finding in findings)
    warnings = "1 warning" if count["warn"] == 1 else f"{count['warn']} warnings"
    counts = f"{count['ok']} ok, {warnings}, {count['fail']} failed, {count['skip']} skipped"
    on = Counter(finding.rests_on for finding in findings if finding.verdict != "skip")
    worth = [f"{on[READ]} lines rest on reading"]
    if ran := on[RAN] + on[RAN_FREELY]:
        worth.append(f"{ran} only on the word of the folder's own code, which was run")
    else:
        worth.append("no code of the folder was run")
    if on[NOT_UNDERSTOOD]:
        worth.append(f"{on[NOT_UNDERSTOOD]} not understood, for a person to read")
    return f"{counts}; {', '.join(worth)}"
