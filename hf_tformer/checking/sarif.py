"""Write findings as SARIF 2.1.0, which code scanning reads: one result for each place."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from urllib.parse import quote

from .. import __version__
from ..path_safety import printable
from .findings import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"fail": "error", "warn": "warning"}
# A file and a line, as places and details begin: "modeling.py:7 os.system".
PLACE = re.compile(r"(?P<file>[^\s:,]+\.[A-Za-z0-9]+)(?::(?P<line>\d+))?(?:[:,\s]|$)")
WHEN_UNKNOWN = "config.json"


def sarif_of(findings: Mapping[str, Sequence[Finding]]) -> dict:
    """Return a log of the findings by folder, whose paths are relative to the current folder."""
    results = [
        result
        for folder, found in findings.items()
        for finding in found
        if finding.verdict in LEVELS
        for result in results_of(folder, finding)
    ]
    rules = {result["ruleId"]: {"id": result["ruleId"]} for result in results}
    for rule, described in rules.items():
        described["shortDescription"] = {"text": f"tformer check: {rule.replace('-', ' ')}"}
    driver = {"name": "tformer check", "version": __version__, "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def results_of(folder: str, finding: Finding) -> Iterator[dict]:
    for place in finding.places or (finding.detail,):
        found = PLACE.match(place)
        name = found["file"] if found else WHEN_UNKNOWN
        physical: dict = {"artifactLocation": {"uri": quote(str(PurePosixPath(folder, name)))}}
        if found and found["line"]:
            physical["region"] = {"startLine": max(1, int(found["line"]))}
        yield {
            "ruleId": rule_of(finding),
            "level": LEVELS[finding.verdict],
            "message": {"text": printable(finding.detail)},
            "locations": [{"physicalLocation": physical}],
            "properties": {"restsOn": finding.rests_on},
        }


def rule_of(finding: Finding) -> str:
    """Return the lasting name of a kind of finding: "safety-pickle", "foreign-code"."""
    name = finding.name.partition(":")[0]
    if name == "safety":
        name += f" {finding.detail.partition(':')[0]}"
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:60].strip("-")
