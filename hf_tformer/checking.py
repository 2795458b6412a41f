"""`python -m hf_tformer check`: what is wrong with a model folder that brings its own code.

    folder or repository → read without running anything (static_checks.py)
                         → compare with this package's own code, where it is one of its families
                         → run in a fresh process (probe.py)  → findings, one line each

The fresh process cannot import this package and has no token, no cache and no network. It is not a
sandbox: the code of the repository runs with the rights of the user. `--no-run` only reads it.
"""

import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from .registration import FAMILIES
from .source_checks import reached
from .static_checks import Folder, few, static_findings

VERDICTS = ("ok", "fail", "warn", "skip")
PROBE = Path(__file__).with_name("probe.py")
MODEL_CODE = Path(__file__).parent / "model"
TIMEOUT = 1800  # seconds; a model of ten billion parameters takes minutes to load in float32
HANGS = "timeout"
# Formats that transformers does not load a model of this kind from.
NOT_LOADED = ("*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.onnx_data", "*.ot", "*.tflite")


class CheckError(Exception):
    """Why there was nothing to check, in one sentence."""


@dataclass(frozen=True)
class Finding:
    name: str
    verdict: str  # one of VERDICTS
    detail: str


def check(source, revision=None, run=True, *, cache=None, timeout=TIMEOUT):
    """Every finding about a folder or a repository on the Hub.

    A repository is downloaded into `cache`, or into a temporary folder that is removed again.
    Without `run` its code is read but not executed. `timeout` (seconds) limits the fresh process.
    """
    with located(source, revision, cache) as path:
        folder = Folder(path, read_config(path))
        findings = [Finding(*line) for line in static_findings(folder)]
        if folder.config.get("model_type") in FAMILIES:
            findings.append(compare_code(folder))
        if run:
            print(f"running the code of {source} in a fresh process ...", file=sys.stderr)
            findings += run_probe(path, timeout)
    return findings


@contextmanager
def located(source, revision, cache):
    """The folder to check: the one given, or a snapshot of a repository."""
    path = Path(source).expanduser()
    if path.is_dir():
        if revision:
            raise CheckError(f"{source} is a folder: a revision can only be chosen of a repository")
        yield path.resolve()
    elif path.exists():
        raise CheckError(f"{source} is a file: give the folder that it is in")
    elif str(source).count("/") > 1 or str(source).startswith((".", "/", "~")):
        raise CheckError(f"there is no folder {source}: check the path")
    elif cache:
        yield download(str(source), revision, cache)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield download(str(source), revision, temporary)


def download(repo_id, revision, cache):
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return Path(
            snapshot_download(
                repo_id, revision=revision, cache_dir=cache, ignore_patterns=list(NOT_LOADED)
            )
        )
    except GatedRepoError as error:
        reason = "is gated: ask for access on its page, then log in with `hf auth login`"
        raise CheckError(f"{repo_id} {reason}") from error
    except RepositoryNotFoundError as error:
        reason = "is neither a folder here nor a repository that you may see: check the name"
        raise CheckError(f"{repo_id} {reason}, or log in with `hf auth login`") from error
    except RevisionNotFoundError as error:
        raise CheckError(f"{repo_id} has no revision {revision}: choose one of its page") from error
    except HFValidationError as error:
        reason = "is neither a folder here nor a repository's name (user/name): check it"
        raise CheckError(f"{repo_id} {reason}") from error
    except (HfHubHTTPError, OSError, ValueError) as error:  # ValueError: not in an offline cache
        reason = f"cannot be downloaded ({type(error).__name__}): check the connection, or give"
        raise CheckError(f"{repo_id} {reason} a folder that has been downloaded") from error


def read_config(path):
    file = path / "config.json"
    if not file.is_file():
        raise CheckError(f"{path} has no config.json: give a folder that save_pretrained wrote")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckError(f"{file} is not JSON ({error}): save the model again") from error
    if not isinstance(config, dict):
        raise CheckError(f"{file} holds no JSON object: save the model again")
    return config


def compare_code(folder):
    """Whether the folder's files of code are those of the installed package, byte by byte."""
    package = importlib.import_module(__package__)
    config_name, models = FAMILIES[folder.config["model_type"]]
    entries = {
        package.NAMES[name].rpartition(".")[2] + ".py" for name in (config_name, *models.values())
    }
    ours = {source.path.name: digest(source.path) for source in reached(MODEL_CODE, entries)}
    theirs = {path.name: digest(path) for path in folder.path.glob("*.py")}
    faults = {
        "differs": [
            f"{name} ({theirs[name][:8]}, here {ours[name][:8]})"
            for name in sorted(ours.keys() & theirs.keys())
            if ours[name] != theirs[name]
        ],
        "missing": sorted(ours.keys() - theirs.keys()),
        "extra": sorted(theirs.keys() - ours.keys()),
    }
    told = "; ".join(f"{kind}: {few(names, 20)}" for kind, names in faults.items() if names)
    installed = f"the installed hf_tformer {package.__version__}"
    if told:
        return Finding("code", "warn", f"not equal to {installed}: {told}")
    return Finding("code", "ok", f"equal to {installed}, {len(ours)} files")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_probe(path, timeout=TIMEOUT):
    """What a fresh process finds; where it dies or hangs, the check it was at fails."""
    with tempfile.TemporaryDirectory() as work:
        report, errors = Path(work, "report.jsonl"), Path(work, "stderr.txt")
        command = [sys.executable, "-I", str(PROBE), str(path), work, str(report)]
        with errors.open("w") as stderr:
            try:
                process = subprocess.run(
                    command,
                    cwd=work,
                    env=environment(work),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    timeout=timeout,
                )
                reason = None if not process.returncode else f"exit status {process.returncode}"
            except subprocess.TimeoutExpired:
                reason = HANGS
        lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        return read_report(map(json.loads, lines), reason, last_line(errors))


def read_report(lines, reason, traceback):
    findings, running = [], "fresh process"
    for name, verdict, detail in lines:
        running = name if verdict == "running" else None
        if verdict != "running":
            findings.append(Finding(name, verdict, detail))
    if reason or running:
        detail = f"the process died ({reason or 'it ended itself'}): {traceback or 'no message'}"
        if reason == HANGS:
            detail = "no answer within the time allowed: allow more, if it is only large"
        findings.append(Finding(running or "fresh process", "fail", detail))
    return findings


def environment(work):
    """No token, no cache and no way to the Hub; everything that is written goes into `work`."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("HF_", "HUGGING", "PYTHON"))}
    return kept | {
        "HF_HOME": str(Path(work, "home")),
        "HF_MODULES_CACHE": str(Path(work, "modules")),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUTF8": "1",
    }


def last_line(file):
    lines = [line.strip() for line in file.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def report_lines(findings):
    """One aligned line per finding, then the summary."""
    width = max((len(finding.name) for finding in findings), default=0)
    for finding in findings:
        yield f"{finding.verdict:<4}  {finding.name:<{width}}  {finding.detail}"
    yield summary(findings)


def summary(findings):
    count = Counter(finding.verdict for finding in findings)
    warnings = "1 warning" if count["warn"] == 1 else f"{count['warn']} warnings"
    return f"{count['ok']} ok, {warnings}, {count['fail']} failed, {count['skip']} skipped"


def add_arguments(parser):
    parser.add_argument("source", metavar="FOLDER_OR_REPO", help="a model folder, or user/name")
    parser.add_argument("--revision", help="branch, tag or commit of a repository")
    parser.add_argument("--json", action="store_true", help="print a JSON list and nothing else")
    parser.add_argument("--no-run", action="store_true", help="read the code, do not execute it")
    parser.add_argument("--cache", help="where to keep a downloaded repository")
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT, help="seconds that its code may run"
    )


def main(args):
    """Prints what `check` finds; the exit status is 1 where something failed, 2 where nothing could
    be checked."""
    try:
        findings = check(
            args.source, args.revision, not args.no_run, cache=args.cache, timeout=args.timeout
        )
    except CheckError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print("\n".join(report_lines(findings)))
    return int(any(finding.verdict == "fail" for finding in findings))
