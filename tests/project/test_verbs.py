"""Every verb of the Makefile works from a fresh clone: it names what is there and finds its tests.

What a verb then takes minutes for is not run here.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.metadata import packages_distributions
from itertools import chain, pairwise

import pytest
from _pytest.mark.expression import Expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.paths import ROOT, TESTS

TARGETS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
# Which constraints hold for which of the project's extras: see the Makefile.
CONSTRAINTS = {
    "constraints/tested.txt": ("test", "train", "viz", "browser", "dev"),
    "constraints/floor.txt": ("test", "train", "viz", "browser", "dev"),
    "constraints/engines.txt": ("test",),
    "constraints/runtimes.txt": (
        *("test", "onnx", "openvino", "executorch", "ctranslate2", "gguf", "runtimes", "tools"),
    ),
    "constraints/docs.txt": ("docs",),
    "constraints/study.txt": ("test", "study"),
}
WITHOUT_THE_PROJECT = ("constraints/docs.txt",)
# Without the project: quantisers beside constraints/tested.txt, the peers of the benchmarks beside
# the runtimes, dist in an environment of its own.
ADDED = ("constraints/quantisers.txt", "constraints/peers.txt", "constraints/dist.txt")

ROOMS = {path.parent.name for path in TESTS.glob("*/test_*.py")}


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(extras, dependencies=True):
    """What pyproject.toml asks for, less the project itself."""
    described = project()
    named = [*described["dependencies"]] if dependencies else []
    for extra in extras:
        named += described["optional-dependencies"][extra]
    parsed = map(Requirement, named)
    return [requirement for requirement in parsed if requirement.name != described["name"]]


def pins(name):
    """Distribution → version, of a constraints file; a name that is there twice fails."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    found = {canonicalize_name(key): version for key, version in pairs}
    assert len(found) == len(pairs), f"{name} names something twice"
    return found


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_pin_everything_that_the_project_asks_for_in_its_range(name):
    pinned = pins(name)
    for requirement in requirements(CONSTRAINTS[name], name not in WITHOUT_THE_PROJECT):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version, f"{name} does not pin {requirement.name}"
        assert requirement.specifier.contains(version), f"{name}: {requirement}, not {version}"


def test_the_floor_is_the_lowest_that_is_promised():
    pinned = pins("constraints/floor.txt")
    for requirement in requirements(()):
        for bound in requirement.specifier:
            if bound.operator == ">=":
                assert pinned[canonicalize_name(requirement.name)] == bound.version, requirement


def dry_run(target, folder):
    words = ["make", "-n", target, "ARGS="]  # without what `make test` was given itself
    run = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [shlex.split(line) for line in run.stdout.replace("\\\n", " ").splitlines()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The tracked files alone: no environment, nothing that is built."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no clone")
    folder = tmp_path_factory.mktemp("clone")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():  # it may be deleted and not committed yet
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.parametrize("target", TARGETS)
def test_a_verb_names_files_and_modules_that_a_clone_has(target, clone):
    for words in dry_run(target, clone):
        follows = dict(pairwise(words))
        constraint = follows.get("--constraint") or follows.get("--requirement")
        assert constraint is None or constraint in {*CONSTRAINTS, *ADDED}
        named = [word for word in words[1:] if re.fullmatch(r"[\w/-]+\.(py|txt)", word)]
        assert not [word for word in named if not (clone / word).exists()], words


def test_clean_removes_what_git_ignores(tmp_path):
    """The first part of .gitignore lists what `make` and Python leave behind."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    listed = (ROOT / ".gitignore").read_text(encoding="utf-8").split("\n\n")[0].splitlines()[1:]
    assert ".hypothesis/" in listed
    places = [tmp_path / name.strip("/").replace("*", "any") for name in listed]
    for place in places:
        place.mkdir(parents=True)
    run = subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not [place for place in places if place.exists()]


def pytest_arguments(target):
    """What a verb gives to pytest, but for its processes."""
    lines = [line for line in dry_run(target, ROOT) if "pytest" in line]
    words = lines[-1][lines[-1].index("pytest") + 1 :]
    for option in {"-n", "--dist"} & {*words}:
        del words[words.index(option) : words.index(option) + 2]
    return words


def selected(target, marks):
    """The tests that a verb takes of those that were found."""
    words = pytest_arguments(target)
    expression = Expression.compile(words[words.index("-m") + 1])
    places = tuple(word for word in words if word.startswith("tests/")) or ("",)
    ignored = tuple(w.partition("=")[2] for w in words if w.startswith("--ignore=")) or ("/",)
    return {
        test
        for test, names in marks.items()
        if test.startswith(places)
        and not test.startswith(ignored)
        and expression.evaluate(lambda name, names=names, **_: name in names)
    }


def test_every_test_belongs_to_one_verb(marks_of_tests):
    """A mark that no verb selects would be a test that nobody runs."""
    verbs = (
        *("test", "test-slow", "test-engines", "test-runtimes", "test-quantisers", "test-wheel"),
        *("test-browser", "test-study", "test-real", "docs"),
    )
    for same in ("test-floor", "test-newest"):
        assert pytest_arguments(same) == pytest_arguments("test")
    taken = {verb: selected(verb, marks_of_tests) for verb in verbs}
    # The page tells of tools that stand in three environments.
    page = {test for test in marks_of_tests if "test_page.py" in test}
    for verb in ("test-engines", "test-study"):
        assert taken[verb] & taken["test-runtimes"] == page & taken[verb]
        taken[verb] -= page
    counts = Counter(chain.from_iterable(taken.values()))
    assert not [test for test in marks_of_tests if counts[test] != 1]
    if {test.split("/")[1] for test in marks_of_tests} == ROOMS:
        assert all(taken.values()), {verb: len(tests) for verb, tests in taken.items()}


COLLECT = """
import sys, pytest

class Names:
    def pytest_collection_finish(self, session):
        print("found:", len(session.items))

sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[1:]], [Names()]))
"""


# As if not installed: whoever asks for the module's spec gets None.
WITHOUT = """
import importlib.machinery, sys

class Hiding(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        absent = name.split(".")[0] in {absent}
        return None if absent else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Hiding
"""


def test_the_tests_of_the_engines_import_only_what_their_environment_has():
    there = {*pins("constraints/engines.txt"), "hf-tformer", "pip"}
    absent = {
        module
        for module, distributions in packages_distributions().items()
        if not there & {canonicalize_name(name) for name in distributions}
    }
    assert {"datasets", "peft", "trl", "babel"} <= absent
    program = WITHOUT.format(absent=sorted(absent)) + COLLECT
    run = subprocess.run(
        [sys.executable, "-c", program, *pytest_arguments("test-engines")],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert re.search("found: [1-9]", run.stdout)
