"""What a visitor meets first is true: badges, citation, forms, and the versions of the hooks."""

import re

import pytest
import yaml

from hf_tformer import __version__, fast
from support.pages import PAGES
from support.paths import ROOT


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


PROJECT = read("pyproject.toml")
PYTHONS = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)


@pytest.mark.parametrize("page", PAGES)
def test_the_badges_say_what_the_project_file_says(page):
    (line,) = [line for line in read(page).splitlines() if "img.shields.io" in line]
    badges = dict(re.findall(r"!\[(\w+):? ([^\]]+)\]", line))
    assert badges == {
        "License": re.search(r'^license = "(.+)"', PROJECT, re.M)[1],
        "Python": f"{PYTHONS[0]} to {PYTHONS[-1]}",
        "transformers": " to ".join(fast.TESTED["transformers"]),
    }
    drawn = re.findall(r"img\.shields\.io/badge/([\w.-]+)\)", line)
    written = [text.replace("--", "\0").replace("_", " ").split("-") for text in drawn]
    assert {name.lower(): value for name, value in badges.items()} == {
        name: value.replace("\0", "-") for name, value, _ in written
    }


def test_the_oldest_tested_transformers_is_the_oldest_that_is_allowed():
    assert f'"transformers>={fast.TESTED["transformers"][0]},<6"' in PROJECT


def test_the_citation_names_this_version_and_license():
    cited = yaml.safe_load(read("CITATION.cff"))
    assert cited["version"] == __version__
    assert f"\n## {__version__} - {cited['date-released']}\n" in read("CHANGELOG.md")
    assert f'license = "{cited["license"]}"' in PROJECT
    assert [author["name"] for author in cited["authors"]] == re.findall(
        r'authors = \[\{ name = "(.+)" \}\]', PROJECT
    )


def test_the_hooks_run_the_ruff_of_make_lint_and_actionlint_on_every_workflow():
    (local,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    *ruff, actionlint = local["hooks"]
    pinned = re.search(r"^ruff==.+$", read("constraints/tested.txt"), re.M)[0]
    assert {tuple(hook["additional_dependencies"]) for hook in ruff} == {(pinned,)}
    commands = [hook["entry"].replace(" --force-exclude", "") for hook in ruff]
    assert commands == ["ruff check", "ruff format"]
    assert all("==" in needed for needed in actionlint["additional_dependencies"])
    for path in (ROOT / ".github" / "workflows").iterdir():
        assert re.search(actionlint["files"], path.relative_to(ROOT).as_posix())
    assert f"pre-commit run {actionlint['id']} --all-files" in read(".github/workflows/ci.yml")


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_a_form_asks_for_the_environment(name):
    form = yaml.safe_load(read(f".github/ISSUE_TEMPLATE/{name}.yml"))
    assert {"name", "description", "body"} <= set(form)
    fields = {field["id"]: field for field in form["body"] if field["type"] != "markdown"}
    environment = fields["environment"]
    assert "`tformer env`" in environment["attributes"]["label"]
    assert environment["attributes"]["render"] == "text"
    assert environment.get("validations", {}).get("required", False) == (name == "bug")


def test_a_pull_request_asks_for_what_contributing_asks_for():
    template = read(".github/pull_request_template.md")
    for word in ("make lint", "make test", "CHANGELOG.md", "tformer env"):
        assert word in template


@pytest.mark.parametrize("page", ["SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_the_ways_to_the_maintainers_are_the_same(page):
    assert "*Security → Report a vulnerability*" in read(page)


def test_the_policy_names_the_versions_of_the_project_file():
    policy = read("CONTRIBUTING.md").split("## Versions that are supported")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| (\w+) \| ([^|]+) \|", policy, re.M))
    assert rows["Python"] == f"{PYTHONS[0]} to {PYTHONS[-1]}"
    for name, bounds in (("torch", "{}"), ("transformers", "{},<6")):
        oldest = rows[name].partition(" ")[0]
        assert f'"{name}>={bounds.format(oldest)}"' in PROJECT


KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_the_changelog_has_the_usual_headings_and_can_be_read():
    newest = read("CHANGELOG.md").split("\n## ")[1]
    found = re.findall(r"^### (.+)$", newest, re.M)
    assert found == [kind for kind in KINDS if kind in found]
    assert found
    assert not re.search(r"^- (Changed|Fixed|Added): ", newest, re.M), (
        "this is what headings are for"
    )
    assert len(newest.split()) < 2_500
