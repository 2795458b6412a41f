"""Fixtures that every test file may use."""

import os

# Before transformers is imported: tests never reach for the network, and one that tries must fail
# at once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import pytest
import simulated_flash
import torch
from families import BACKENDS, FAMILIES

# The models are tiny: handing their work to a second thread costs more than doing it.
torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--plain-paths", action="store_true", help="with what is there for speed alone switched off"
    )


@pytest.fixture(autouse=True)
def plain_paths(request, monkeypatch):
    """The whole suite has to pass without the fast paths, too: they may not carry any behaviour."""
    if request.config.getoption("--plain-paths") and "fast_paths" not in request.module.__name__:
        model = "hf_tformer.model"
        monkeypatch.setattr(f"{model}.generation.writes_alone", lambda *args: False)
        for module in ("modeling_decoder", "stacks_seq2seq"):
            monkeypatch.setattr(f"{model}.{module}.run_next_tokens", lambda *args: None)
            monkeypatch.setattr(f"{model}.{module}.run_whole_texts", lambda *args: None)
            monkeypatch.setattr(f"{model}.{module}.write_in_place", lambda cache: None)


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(0)


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request):
    return request.param


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    if request.param.startswith("flash"):
        simulated_flash.install(monkeypatch)
    return request.param
