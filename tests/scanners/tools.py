"""The scanners: how each is installed and asked, and what it calls its levels.

A scanner yields (path, level) for everything that it reports, in its own words. A file of which it
says that it cannot be read is reported, too: the level is then UNREAD.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hf_tformer import __version__
from hf_tformer.checking.findings import DANGERS, NOT_UNDERSTOOD, is_danger
from hf_tformer.checking.folder import Folder
from hf_tformer.checking.reading import static_findings

UNREAD = "not read"
# Nothing of what is scanned, and nothing about the scan, is sent anywhere.
QUIET = {"PROMPTFOO_DISABLE_TELEMETRY": "1", "SEMGREP_SEND_METRICS": "off"}


class Scanner(NamedTuple):
    name: str
    high: tuple[str, ...]  # its highest levels, at which a user stops
    ask: Callable  # (folder of its programs, folder of the forms, Semgrep's rules)
    package: str | None = None
    beside: tuple[str, ...] = ()  # what it imports and does not ask for


def run(*command):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env={**os.environ, **QUIET}
    )
    if not done.stdout.strip():
        raise RuntimeError(f"{command[0]} printed nothing: {done.stderr[-2000:]}")
    return done.stdout


def answer_of(*command):
    """Run a program that prints JSON, with lines of its own in front of it."""
    printed = run(*command)
    return json.loads(printed[min(i for i in map(printed.find, "[{") if i >= 0) :])


def ask_check(programs, forms, rules):
    """Read each folder in this process, as `tformer check --no-run` does in one of its own."""
    for folder in sorted(forms.iterdir()):
        for finding in static_findings(Folder(folder)):
            if finding.rests_on == NOT_UNDERSTOOD:
                yield folder, NOT_UNDERSTOOD
            elif is_danger(finding):
                yield folder, "fail"
            elif finding.verdict in ("warn", "fail") and finding.name in (*DANGERS, "weights"):
                yield folder, "warn"


def ask_bandit(programs, forms, rules):
    found = answer_of(programs / "bandit", "--recursive", forms, "--format", "json", "--quiet")
    yield from ((result["filename"], result["issue_severity"]) for result in found["results"])
    yield from ((error["filename"], UNREAD) for error in found["errors"])


def ask_semgrep(programs, forms, rules):
    options = ["--metrics", "off", "--disable-version-check", "--no-git-ignore", "--quiet"]
    config = ["--config", rules / "python"]
    found = answer_of(programs / "semgrep", "scan", *options, *config, "--json", forms)
    yield from ((result["path"], result["extra"]["severity"]) for result in found["results"])
    yield from ((error["path"], UNREAD) for error in found["errors"] if "path" in error)


def ask_modelaudit(programs, forms, rules):
    options = ["--format", "json", "--no-cache", "--timeout", "3600"]
    found = answer_of(programs / "modelaudit", "scan", *options, forms)
    # A remark about the whole collection has "." for a location.
    issues = [issue for issue in found["issues"] if issue["location"].startswith(str(forms))]
    yield from ((issue["location"], issue["severity"]) for issue in issues)


# What these four find in one folder depends on the others, or they take one file at a time: so they
# are asked folder by folder, by a program that their own interpreter runs.
PROGRAM = """
import json, logging, sys
from pathlib import Path
logging.disable()
{}
found = []
for folder in sorted(Path(sys.argv[1]).iterdir()):
    found += [(str(folder), level) for level in levels(folder)]
print(json.dumps(found))
"""
PICKLESCAN = """
from picklescan.scanner import scan_directory_path
def levels(folder):
    found = scan_directory_path(str(folder))
    yield from ["dangerous"] * found.issues_count + ["suspicious"] * found.suspicious_count
    yield from ["not read"] * found.scan_err
"""
MODELSCAN = """
from modelscan.modelscan import ModelScan
def levels(folder):
    found = ModelScan().scan(folder)
    yield from (issue["severity"] for issue in found["issues"])
    yield from ("not read" for error in found["errors"])
"""
FICKLING = """
import zipfile
from fickling.loader import scan_file, scan_zip_archive
def levels(folder):
    for path in folder.rglob("*"):
        if path.suffix in (".bin", ".joblib", ".pkl", ".pt", ".pth"):
            if zipfile.is_zipfile(path):
                results = scan_zip_archive(str(path), graceful=True).values()
            else:
                results = [scan_file(str(path), graceful=True)]
            yield from (result.severity.name for result in results if not result.is_safe)
"""
GUARDDOG = """
from guarddog.scanners.pypi_package_scanner import PypiPackageScanner
scanner = PypiPackageScanner()
def levels(folder):
    found = scanner.scan_local(str(folder))
    yield from [found["risk_score"]["label"]] * bool(found["issues"])
"""


def asked_by(program):
    def ask(programs, forms, rules):
        return answer_of(programs / "python", "-c", PROGRAM.format(program), forms)

    return ask


# Its level below these, LIKELY_UNSAFE, is that of every tensor that torch has saved.
MALICIOUS = ("LIKELY_OVERTLY_MALICIOUS", "OVERTLY_MALICIOUS")
SCANNERS = (
    Scanner("`tformer check`", ("fail", NOT_UNDERSTOOD), ask_check),
    Scanner("Bandit", ("HIGH",), ask_bandit, "bandit"),
    Scanner("Semgrep", ("ERROR",), ask_semgrep, "semgrep"),
    Scanner("GuardDog", ("suspicious", "high_risk"), asked_by(GUARDDOG), "guarddog"),
    Scanner("ModelAudit", ("critical",), ask_modelaudit, "modelaudit"),
    Scanner("picklescan", ("dangerous",), asked_by(PICKLESCAN), "picklescan", ("numpy",)),
    # It calls a function that later releases of numpy have moved.
    Scanner("ModelScan", ("HIGH", "CRITICAL"), asked_by(MODELSCAN), "modelscan", ("numpy<2.3",)),
    Scanner("Fickling", MALICIOUS, asked_by(FICKLING), "fickling", ("typing_extensions",)),
)


def installed(scanner, environments):
    """Return the folder of a scanner's programs, and its version; install it where it is missing.

    Each has an environment of its own, because they ask for different releases of others.
    """
    if not scanner.package:
        return None, __version__
    place = environments / scanner.package
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, scanner.package, *scanner.beside], check=True)
        (place / "ready").touch()
    tell = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    return python.parent, run(python, "-c", tell, scanner.package).strip()


def version_of_rules(rules):
    """Return the commit and the day of a checkout of Semgrep's public rules."""
    return run("git", "-C", rules, "log", "-1", "--format=%h (%cs)").strip()


def levels_by_folder(scanner, programs, forms, rules):
    """Return the set of levels at which a scanner reports each folder, by the folder's name."""
    found = {folder.name: set() for folder in forms.iterdir()}
    for path, level in scanner.ask(programs, forms, rules):
        place = Path(str(path)).relative_to(forms)
        found[place.parts[0]].add(level)
    return found
