"""Fixtures that every test file may use."""

import gc
import os
import signal
import sys
from contextlib import nullcontext

# Before transformers is imported: tests never reach for the network, and one that tries must fail
# at once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import pytest
import torch

from hf_tformer import fast
from hf_tformer.checking import permission, report
from hf_tformer.checking.folder import opened
from hf_tformer.checking.reading import static_findings
from hf_tformer.testing import simulated_flash
from support.families import BACKENDS, FAMILIES
from support.older_transformers import expect_differences
from support.warm_python import RARELY, WarmPython

# A shell lets what it starts in the background ignore SIGINT, and so would the tests' programs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected: nothing of what they import is garbage

# The models are tiny: handing their work to a second thread costs more than doing it.
torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--plain-paths", action="store_true", help="with what is there for speed alone switched off"
    )


# Of every test that was found, before any is deselected: its marks.
MARKS = pytest.StashKey[dict[str, set[str]]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    config.stash[MARKS] = {i.nodeid: {mark.name for mark in i.iter_markers()} for i in items}
    expect_differences(items)


def pytest_collection_finish():
    """What is there by now stays until the end: a tenth of the time went by in looking at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*RARELY)
    gc.enable()


@pytest.fixture
def marks_of_tests(request):
    return request.config.stash[MARKS]


@pytest.fixture(autouse=True)
def plain_paths(request):
    """The whole suite has to pass without the fast paths, too: they may not carry any behaviour."""
    is_about_them = "fast" in request.path.parts
    wanted = request.config.getoption("--plain-paths") and not is_about_them
    with fast.disabled() if wanted else nullcontext():
        yield


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def warm(tmp_path_factory):
    server = WarmPython(tmp_path_factory.mktemp("warm"))
    yield server
    server.stop()


@pytest.fixture
def warm_python(request, monkeypatch):
    """What is started by `sys.executable` is a process that has imported torch already, and mostly
    transformers."""
    if sys.platform == "linux":
        executable = request.getfixturevalue("warm").executable
        monkeypatch.setattr(sys, "executable", str(executable))


@pytest.fixture
def real_python(warm_python, request, monkeypatch):
    """In a file whose tests have `warm_python`: this one starts processes that import all anew."""
    if sys.platform == "linux":
        monkeypatch.setattr(sys, "executable", request.getfixturevalue("warm").real)


@pytest.fixture
def read_here(monkeypatch):
    """Folders are read in this process, for tests that are not about the process that reads.

    That takes a second for each folder; here the libraries that code refers to are read once.
    """

    def read(folder, timeout=None):
        again = opened(folder.path, folder.left_out)
        findings = list(static_findings(again))
        folder.unread.update(again.unread)
        return findings

    for module in (permission, report):
        monkeypatch.setattr(module, "read", read)


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request):
    return request.param


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    if request.param.startswith("flash"):
        simulated_flash.install(monkeypatch)
    return request.param
