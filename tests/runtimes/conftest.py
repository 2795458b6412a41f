"""`make exports` writes EXPORTS.md from what tests/runtimes/test_table.py finds."""

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "EXPORTS.md"


def pytest_addoption(parser):
    parser.addoption("--write-exports", action="store_true", help="write EXPORTS.md")


@pytest.fixture(scope="session")
def table(request):
    """Rows to be added to the page, in the order in which the tests find them."""
    rows = []
    yield rows
    if request.config.getoption("--write-exports") and rows:
        from exports_page import page

        PAGE.write_text(page(rows), encoding="utf-8")
