"""The workflows run what the Makefile has, in valid shell, with few rights and a limit of time."""

import os
import re
import subprocess
from itertools import product

import pytest
import yaml

from hf_tformer import __version__
from support.paths import ROOT

FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
TARGETS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
# Rights beyond reading the code, and the jobs that have them.
RIGHTS = {
    "weekly.yml/report": {"actions": "read", "issues": "write"},
    "release.yml/publish": {"id-token": "write"},
    "release.yml/pages": {"id-token": "write", "pages": "write"},
    "release.yml/notebooks": {"contents": "write"},
}
READING = {"contents": "read"}
# Verbs that no workflow runs: they write or remove files of a developer, or need an idle machine.
ELSEWHERE = {"help", "format", "clean", "bench", "scanners", "verify"}


def load(path):
    """A workflow; YAML 1.1 takes its key `on` for a truth value."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    found["on"] = found.pop(True)
    return found


JOBS = [
    pytest.param(path, job, id=f"{path.name}/{name}")
    for path in WORKFLOWS
    for name, job in load(path)["jobs"].items()
]


def variants(job):
    """The values of a job's matrix, one dictionary for each run of the job."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    included = matrix.pop("include", [])
    combined = [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]
    return [values for values in [*combined, *included] if values or not included]


def commands(job):
    """What a job's steps run, with the values of its matrix and any word for other expressions."""
    for values in variants(job):
        for step in job.get("steps", []):
            if text := step.get("run"):
                for name, value in values.items():
                    text = text.replace(f"${{{{ matrix.{name} }}}}", str(value))
                yield re.sub(r"\$\{\{.*?\}\}", "value", text)


def verbs(job):
    return [verb for text in commands(job) for verb in re.findall(r"\bmake ([\w-]+)", text)]


@pytest.mark.parametrize(("path", "job"), JOBS)
def test_every_verb_is_one_of_the_makefile(path, job):
    assert set(verbs(job)) <= set(TARGETS)


def test_every_verb_of_the_makefile_is_run_by_a_workflow_or_known_to_be_run_elsewhere():
    run = {verb for path in WORKFLOWS for job in load(path)["jobs"].values() for verb in verbs(job)}
    assert run == set(TARGETS) - ELSEWHERE


@pytest.mark.parametrize(("path", "job"), JOBS)
def test_every_command_is_valid_shell(path, job):
    found = list(commands(job))
    assert found or "uses" in job or not [step for step in job["steps"] if "run" in step]
    for text in found:
        run = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        assert run.returncode == 0, f"{text}\n{run.stderr}"


@pytest.mark.parametrize(("path", "job"), JOBS)
def test_a_command_takes_nothing_from_outside_by_an_expression(path, job):
    """An expression is text that becomes part of the command: a title may hold a command."""
    for step in job.get("steps", []):
        named = re.findall(r"\$\{\{\s*(.*?)\s*\}\}", step.get("run", ""))
        assert {name.partition(".")[0] for name in named} <= {"matrix"}


@pytest.mark.parametrize(("path", "job"), JOBS)
def test_every_job_ends_and_has_few_rights(path, job, request):
    place = request.node.callspec.id
    assert load(path)["permissions"] == READING
    assert job.get("permissions", READING) == RIGHTS.get(place, READING)
    if "uses" in job:  # the jobs of that workflow have limits of their own
        assert (ROOT / job["uses"]).exists()
    else:
        assert 0 < job["timeout-minutes"] <= 240


@pytest.mark.parametrize(("path", "job"), JOBS)
def test_an_action_is_named_with_its_major_version(path, job):
    for step in job.get("steps", []):
        if "uses" in step:
            assert re.fullmatch(r"(actions/[\w-]+@v\d+|pypa/[\w-]+@release/v\d+)", step["uses"])
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": False}


def test_the_tests_run_on_every_python_that_the_project_file_promises():
    matrix = load(FOLDER / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["include"]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    assert promised[0] == re.search(r'requires-python = ">=(.+)"', text)[1]
    assert list(dict.fromkeys(row["python"] for row in matrix)) == promised
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    checked = re.search(r"for version in (.+); do \$\(BIN\)/mypy", makefile)[1].split()
    assert [re.search(r'python_version = "(.+)"', text)[1], *checked] == promised
    for verb in ("test", "test-floor", "test-newest"):
        assert verb in {row["verb"] for row in matrix}


def test_a_release_waits_for_the_tests_and_stores_no_token():
    release = load(FOLDER / "workflows" / "release.yml")
    assert set(release["on"]) == {"push"}
    assert "tests" in release["jobs"]["publish"]["needs"]
    for path in WORKFLOWS:
        assert "secrets." not in path.read_text(encoding="utf-8")


def run_step(workflow, job, name, folder=ROOT, **environment):
    steps = load(FOLDER / "workflows" / workflow)["jobs"][job]["steps"]
    (text,) = [step["run"] for step in steps if step.get("name", "").startswith(name)]
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    return subprocess.run(
        words, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.mark.parametrize(("tag", "status"), [(f"v{__version__}", 0), ("v0.0.999", 1)])
def test_a_tag_has_to_be_the_version(tag, status):
    done = run_step("release.yml", "build", "Compare the tag", GITHUB_REF_NAME=tag)
    assert done.returncode == status


def test_the_notebooks_of_a_release_are_a_branch(tmp_path):
    target, pushed = tmp_path / "target.git", "01-attention-without-weights.ipynb"
    subprocess.run(["git", "init", "--quiet", "--bare", target], check=True)
    for tag in ("v1.0.0", "v1.1.0"):
        folder = tmp_path / tag
        for language in ("en", "zh"):
            (folder / language).mkdir(parents=True)
            (folder / language / pushed).write_text(tag)
        names = {"TARGET": str(target), "GITHUB_REF_NAME": tag}
        done = run_step("release.yml", "notebooks", "Push", folder, **names)
        assert done.returncode == 0, done.stderr
    shown = ["git", "-C", target, "log", "--format=%s", "--name-only", "notebooks"]
    found = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.split("\n")
    assert found[:4] == ["Notebooks of v1.1.0", "", f"en/{pushed}", f"zh/{pushed}"]


def weekly_verbs():
    return verbs(load(FOLDER / "workflows" / "weekly.yml")["jobs"]["verb"])


def pages_written_weekly():
    """Page → verb of the weekly run, for each page that says which verb writes it."""
    said = {
        page.relative_to(ROOT).as_posix(): re.search(
            r"^Written by .*?`make ([a-z-]+)`", page.read_text(encoding="utf-8"), re.M
        )
        for folder in ("docs", "benchmarks")
        for page in (ROOT / folder).glob("*.md")
    }
    return {page: m[1] for page, m in said.items() if m and m[1] in weekly_verbs()}


def test_a_verb_of_the_week_that_writes_says_so_in_its_page():
    """The Makefile gives the option `--write` or `--write-NAME` to what writes tracked pages."""
    writing = set()
    for verb in weekly_verbs():
        words = ["make", "--dry-run", verb, "ARGS="]  # without what `make test` was given itself
        run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        if "--write" in run.stdout:
            writing.add(verb)
    assert writing == set(pages_written_weekly().values())


def test_a_week_forgives_the_pages_that_its_verbs_write_and_names_any_other_change(tmp_path):
    pages = sorted(pages_written_weekly())
    others = ["README.md", "docs/verified.json", "hf_tformer/view/page/page.js"]
    for name in [*pages, *others]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("figures of one day\n")
    for words in ("init", "add ."):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True, capture_output=True)
    for name in pages:
        (tmp_path / name).write_text("figures of another day\n")
    done = run_step("weekly.yml", "verb", "Name what", tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    for name in others:
        (tmp_path / name).write_text("changed\n")
        done = run_step("weekly.yml", "verb", "Name what", tmp_path)
        assert done.returncode == 1
        assert name in done.stdout
        assert not [page for page in pages if page in done.stdout]


# The command of GitHub: notes how it was called, and answers with the line of its first words.
GH = """#!/bin/sh
printf '%s\\n' "$*" >> calls
case "$1 $2" in
    api*) echo '- [make docs](https://x): failure' ;;
    'issue list') cat open ;;
esac
"""


@pytest.mark.parametrize(("number", "last"), [("", "issue create"), ("7\n", "issue comment 7")])
def test_what_failed_in_a_week_is_said_in_one_issue(number, last, tmp_path):
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "open").write_text(number)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = run_step("weekly.yml", "report", "Open an issue", tmp_path, PATH=path, GH_REPO="a/b")
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text()
    assert f"\n{last} " in calls
    assert "- [make docs](https://x): failure" in calls
    assert calls.count("issue c") == 1
