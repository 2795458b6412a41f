"""The code of the installed package that a checkpoint carries, and a folder staged with it."""

import functools
import json
import re
import shutil
from pathlib import Path

from ..families import FAMILIES
from .folder import MODEL_CODE, Folder, code_file
from .source_code import reached

INSIDE = "tformer_refresh_"  # name of a folder that can be imported: see refreshing/replacing.py
OUR_FIRST_LINE = re.compile(rb"# Copyright \d+ The hf_tformer authors\.")


@functools.cache
def package_code(model_type: str) -> dict[str, Path]:
    """Return the files of code that a checkpoint of a family carries, by name."""
    entries = {
        reference.split(".")[0] + ".py" for reference in FAMILIES[model_type].auto_map().values()
    }
    sources = reached(Folder(MODEL_CODE).all_sources, entries)
    return {source.name: MODEL_CODE / source.name for source in sources}


def code_under(folder: Folder) -> dict[str, Path]:
    """Return the files of our code that the folder would carry today, by name.

    These are the files of its family, or those that a user's own model is built on.
    """
    if is_of_package(folder):
        return package_code(folder.config["model_type"])
    if not has_own_configuration(folder):
        return {}
    ours = {name for name in loaded_code(folder) if is_ours(folder.path / name)}
    sources = reached(Folder(MODEL_CODE).all_sources, ours)
    return {source.name: MODEL_CODE / source.name for source in sources}


def is_of_package(folder: Folder) -> bool:
    """Return whether it is a model of this package, and not a user's own."""
    return str(folder.config.get("model_type")) in FAMILIES


def has_own_configuration(folder: Folder) -> bool:
    """Return whether a model_type that is not ours has a configuration that is not ours either."""
    files = [
        folder.path / without_inside(code_file(reference))
        for reference in folder.references
        if reference[:2] == ("config.json", "AutoConfig")
    ]
    is_named = isinstance(folder.config.get("model_type"), str)
    return is_named and bool(files) and not any(map(is_ours, files))


def loaded_code(folder: Folder) -> set[str]:
    """Return the names of the files of code that loading runs."""
    names = (source.name for source in folder.sources)
    return {without_inside(name) for name in names if "/" not in without_inside(name)}


def without_inside(name: str) -> str:
    """Return a file name, or a reference, as it is once an interrupted refresh is finished."""
    return re.sub(rf"^{INSIDE}[0-9a-f]{{8}}/", "", name)


def auto_map_today(folder: Folder) -> dict[str, str]:
    """Return its auto_map, with the classes of the installed package if the model is ours."""
    ours = {}
    if is_of_package(folder):
        family = FAMILIES[folder.config["model_type"]]
        ours = family.auto_map(folder.config.get("architectures"))
    return {n: without_inside(r) for n, r in {**folder.config["auto_map"], **ours}.items()}


def obsolete_code(folder: Folder) -> set[str]:
    """Return files of code that an earlier release wrote and the installed package no longer has.

    A file with our first line that nothing loads may be a user's copy: it is not ours.
    """
    gone = loaded_code(folder) - code_under(folder).keys()
    return {name for name in gone if is_ours(folder.path / name)}


def is_ours(path: Path) -> bool:
    return path.is_file() and OUR_FIRST_LINE.match(path.read_bytes()) is not None


def stage_with_package_code(folder: Folder, place: Path, obsolete: set[str]) -> None:
    """Put into an empty `place` what `folder` would be with the code of the installed package.

    Files that do not change, above all its weights, are linked.
    """
    code = code_under(folder)
    for path in folder.path.iterdir():
        if path.is_file() and path.name not in {*code, *obsolete, "config.json"}:
            (place / path.name).symlink_to(path.resolve())
    for name, path in code.items():
        shutil.copyfile(path, place / name)
    # Bytes, because a translation of line ends would change the rest of the file.
    text = (folder.path / "config.json").read_bytes().decode("utf-8")
    (place / "config.json").write_bytes(with_auto_map(text, auto_map_today(folder)).encode("utf-8"))


def with_auto_map(text: str, auto_map: dict[str, str]) -> str:
    """Return the text of a config.json with another auto_map; every other byte stays as it is.

    So does its format_version: code reads every format up to its own.
    """
    wanted = {**json.loads(text), "auto_map": auto_map}
    if wanted == json.loads(text):
        return text
    written = json.dumps(auto_map, indent=2, sort_keys=True).replace("\n", "\n  ")
    for key in re.finditer(r'"auto_map"\s*:\s*', text):
        _, end = json.JSONDecoder().raw_decode(text, key.end())
        changed = text[: key.end()] + written + text[end:]
        if json.loads(changed) == wanted:  # otherwise it was a key deeper in the file
            return changed
    return json.dumps(wanted, indent=2, sort_keys=True) + "\n"
