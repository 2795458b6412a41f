"""What a check found, and what its verdict is worth."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

# What a verdict rests on.
READ = "read"  # files, and answers that were sent before any code of the folder ran
RAN = "ran behind walls"  # the word of the interpreter that ran the folder's code
RAN_FREELY = "ran without walls"
NOT_UNDERSTOOD = "not understood"  # nothing: reading cannot tell what this does


@dataclass(frozen=True)
class Finding:
    """The result of one check; the verdict is "ok", "fail", "warn" or "skip"."""

    name: str
    verdict: str
    detail: str
    rests_on: str = READ


def summary(findings: Iterable[Finding]) -> str:
    """Return a sentence with the number of each verdict, and what they are worth."""
    findings = list(findings)
    count = Counter(finding.verdict for finding in findings)
    warnings = "1 warning" if count["warn"] == 1 else f"{count['warn']} warnings"
    counts = f"{count['ok']} ok, {warnings}, {count['fail']} failed, {count['skip']} skipped"
    on = Counter(finding.rests_on for finding in findings)
    worth = [f"{on[READ]} lines rest on reading"]
    if ran := on[RAN] + on[RAN_FREELY]:
        worth.append(f"{ran} only on the word of the folder's own code, which was run")
    else:
        worth.append("no code of the folder was run")
    if on[NOT_UNDERSTOOD]:
        worth.append(f"{on[NOT_UNDERSTOOD]} not understood, for a person to read")
    return f"{counts}; {', '.join(worth)}"
