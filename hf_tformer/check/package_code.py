"""The code of the installed package, as it travels, and a folder that would carry it."""

import functools
import importlib
import json
import re
import shutil
from pathlib import Path

from ..registration import FAMILIES
from .folder import MODEL_CODE, Folder
from .source_code import reached

PACKAGE = "hf_tformer"
OUR_FIRST_LINE = re.compile(rb"# Copyright \d+ The hf_tformer authors\.")


@functools.cache
def package_code(model_type: str) -> dict[str, Path]:
    """File name → file of everything that a checkpoint of a family carries."""
    entries = {
        reference.split(".")[0] + ".py" for reference in package_auto_map(model_type).values()
    }
    sources = reached(Folder(MODEL_CODE).all_sources, entries)
    return {source.name: MODEL_CODE / source.name for source in sources}


def package_auto_map(model_type: str) -> dict[str, str]:
    """What the configuration of a family says of its Auto classes."""
    modules = importlib.import_module(PACKAGE).NAMES
    config_name, models = FAMILIES[model_type]
    classes = {"AutoConfig": config_name, **models}
    return {auto: f"{modules[name].rpartition('.')[2]}.{name}" for auto, name in classes.items()}


def obsolete_code(folder: Folder) -> set[str]:
    """Files of code that an earlier release wrote and the installed package no longer has.

    A file that bears our first line and that nothing loads may be somebody's copy: it is not ours.
    """
    loaded = {source.name for source in folder.sources if not source.folder}
    gone = loaded - package_code(folder.config["model_type"]).keys()
    return {name for name in gone if is_ours(folder.path / name)}


def is_ours(path: Path) -> bool:
    return path.is_file() and OUR_FIRST_LINE.match(path.read_bytes()) is not None


def stage_with_package_code(folder: Folder, place: Path, obsolete: set[str]) -> None:
    """Puts into an empty `place` what `folder` would be with the code of the installed package.

    What stays as it is, its weights above all, is linked.
    """
    code = package_code(folder.config["model_type"])
    for path in folder.path.iterdir():
        if path.is_file() and path.name not in {*code, *obsolete, "config.json"}:
            (place / path.name).symlink_to(path.resolve())
    for name, path in code.items():
        shutil.copyfile(path, place / name)
    auto_map = {**folder.config["auto_map"], **package_auto_map(folder.config["model_type"])}
    # Bytes, because a translation of line ends would change the rest of the file.
    text = (folder.path / "config.json").read_bytes().decode("utf-8")
    (place / "config.json").write_bytes(with_auto_map(text, auto_map).encode("utf-8"))


def with_auto_map(text: str, auto_map: dict[str, str]) -> str:
    """The text of a config.json with another auto_map; every other byte stays as it is.

    Its format_version, too: code reads every format up to its own, and nothing else is rewritten.
    """
    wanted = {**json.loads(text), "auto_map": auto_map}
    if wanted == json.loads(text):
        return text
    written = json.dumps(auto_map, indent=2, sort_keys=True).replace("\n", "\n  ")
    for key in re.finditer(r'"auto_map"\s*:\s*', text):
        _, end = json.JSONDecoder().raw_decode(text, key.end())
        changed = text[: key.end()] + written + text[end:]
        if json.loads(changed) == wanted:  # and not a key of that name deeper in the file
            return changed
    return json.dumps(wanted, indent=2, sort_keys=True) + "\n"
