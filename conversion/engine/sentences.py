"""Copy the modules of a sentence-transformers folder that follow the model.

They pool, project and normalise the vectors of tokens to one vector of a text.
"""

import json
import shutil
from pathlib import Path, PurePosixPath

from .errors import ConversionError

MODULES = "modules.json"
# Files beside the model: the maximum length, the prompts.
SETTINGS = (
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_xlm-roberta_config.json",
)


def copy_sentence_modules(src: Path, folder: Path) -> None:
    """Copy what modules.json names, if there is one; refuse paths that lead out of the folder."""
    if not (src / MODULES).is_file():
        return
    for name in (MODULES, *SETTINGS):
        if (src / name).is_file():
            copy(src / name, src, folder)
    for module in module_folders(src / MODULES):
        for path in sorted((src / module).rglob("*")):
            if path.is_file():
                copy(path, src, folder)


def module_folders(path: Path) -> list[str]:
    """Return the folders of the modules that follow the model, which lies in the folder itself."""
    try:
        folders = [module["path"] for module in json.loads(path.read_text(encoding="utf-8"))]
        parts = [PurePosixPath(folder).parts for folder in folders]
    except (ValueError, TypeError, KeyError) as error:
        raise ConversionError(
            f"{path} is no list of modules with a path each ({error!r}): correct it there"
        ) from error
    for folder, names in zip(folders, parts, strict=True):
        if ".." in names or folder.startswith("/"):
            raise ConversionError(
                f"path is {folder!r} in {path}, outside of the folder: name folders inside it"
            )
    return [folder for folder in folders if folder not in ("", ".")]


def copy(path: Path, src: Path, folder: Path) -> None:
    if not any(path.resolve().is_relative_to(root) for root in roots(src.resolve())):
        raise ConversionError(f"{path} leads out of its folder: put the file itself there")
    target = folder / path.relative_to(src)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def roots(folder: Path) -> list[Path]:
    """Return the folder, and where the Hub's cache keeps the files that a snapshot links to."""
    repository = folder.parent.parent
    is_snapshot = folder.parent.name == "snapshots" and repository.name.startswith("models--")
    return [folder, repository / "blobs"] if is_snapshot else [folder]
