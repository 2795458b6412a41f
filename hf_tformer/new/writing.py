"""The folder of a new kind of model: files of this package, and those of decoder/ and its like."""

import ast
import importlib.util
import keyword
import re
import shutil
import sys
from pathlib import Path

from ..atomic_folders import unfinished_folder
from ..checking.package_code import package_code
from ..families import FAMILIES
from .readme import readme

TEMPLATES = Path(__file__).parent
FAMILY_NAMES = tuple(family.name for family in FAMILIES.values())
PARTIAL = re.compile(r"\..+-[0-9a-f]{8}\.partial")
WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class NewError(Exception):
    """Why nothing was written, in one sentence."""


def write_new(folder: str | Path, family: str, name: str) -> list[str]:
    """Writes a model called `name` that is built on a family; the names of its files."""
    folder = Path(folder).expanduser().absolute()
    if family not in FAMILY_NAMES:
        raise NewError(f"family is {family!r}: choose one of {', '.join(FAMILY_NAMES)}")
    refuse_name(name)
    refuse_place(folder)
    model_type = model_type_of(name)
    code = package_code(f"tformer_{family}")
    texts = own_texts(family, name, model_type)
    if taken := sorted(code.keys() & texts.keys()):
        raise NewError(f"name is {name!r}, whose file would be our {taken[0]}: choose another")
    for file, text in texts.items():
        refuse_clashing_classes(name, file, text)
    texts["README.md"] = readme(folder.name, FAMILIES[f"tformer_{family}"], name, model_type)
    try:
        with unfinished_folder(folder.parent, f".{folder.name}-", ".partial", PARTIAL) as partial:
            for file, path in code.items():
                shutil.copyfile(path, partial / file)
            for file, text in texts.items():
                (partial / file).write_text(text, encoding="utf-8")
            partial.replace(folder)
    except OSError as error:
        reason = error.strerror or error
        raise NewError(f"{folder} could not be written ({reason}): choose another place") from error
    return sorted([*code, *texts])


def model_type_of(name: str) -> str:
    """MyModel → my_model"""
    return WORDS.sub("_", name).lower()


def own_texts(family: str, name: str, model_type: str) -> dict[str, str]:
    """The files to change, by name."""
    texts = {}
    for path in sorted((TEMPLATES / family).glob("*.py")):
        text = path.read_text(encoding="utf-8").replace("Mine", name)
        text = re.sub(r"(?<![a-z])mine(?![a-z])", model_type, text)
        texts[path.name.replace("mine", model_type)] = text
    return texts


def refuse_name(name: str) -> None:
    from transformers import CONFIG_MAPPING

    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or keyword.iskeyword(name):
        raise NewError(f"name is {name!r}: choose the beginning of class names, such as MyModel")
    if (model_type := model_type_of(name)) in CONFIG_MAPPING:
        raise NewError(
            f"name is {name!r}, and transformers opens {model_type!r} with a model that it knows: "
            "choose another"
        )


def refuse_place(folder: Path) -> None:
    """The folder is a package, and its name one that Python can import and nobody else has."""
    if not folder.parent.is_dir():
        raise NewError(f"{folder.parent} is no folder: make it first, or choose another place")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise NewError(f"{folder} exists: choose another name, or remove it first")
    name = folder.name
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or keyword.iskeyword(name):
        remedy = "choose letters, digits and underscores, such as my_model"
        raise NewError(f"{name!r} is no name that Python can import: {remedy}")
    if is_taken(folder):
        raise NewError(f"{name!r} is the name of a module that is installed: choose another")


def is_taken(folder: Path) -> bool:
    if folder.name in sys.stdlib_module_names:
        return True
    found = importlib.util.find_spec(folder.name)
    places = [] if found is None else list(found.submodule_search_locations or [found.origin])
    return any(Path(place).resolve() != folder.resolve() for place in places if place)


def refuse_clashing_classes(name: str, file: str, text: str) -> None:
    """A class that is called like one that its file imports would hide it."""
    tree = ast.parse(text)
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    imported = {alias.name for node in imports for alias in node.names}
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    if both := sorted(imported & defined):
        raise NewError(f"name is {name!r}, and {both[0]} is a class of ours: choose another")
