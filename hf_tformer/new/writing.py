"""Write the folder of a new kind of model: files of this package, and those of templates/."""

import ast
import importlib.util
import keyword
import re
import shutil
import sys
from pathlib import Path

from ..atomic_folders import unfinished_folder
from ..checking.package_code import package_code
from ..families import FAMILIES, Family
from .readme import readme

TEMPLATES = Path(__file__).parent / "templates"
# Lines of modeling_mine.py for Trainer's label smoothing, which shifts the labels of a decoder.
LABEL_SHIFT = re.compile(
    r"from .* import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES\n|# Trainer's .*\nMODEL_FOR_CAUSAL_LM.*\n\n"
)
BY_NAME = {family.name: family for family in FAMILIES.values()}
PARTIAL = re.compile(r"\..+-[0-9a-f]{8}\.partial")
WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class NewError(Exception):
    """A sentence that says why nothing was written."""


def write_new(folder: str | Path, family: str, name: str) -> list[str]:
    """Write a model called `name` that is built on a family; return the names of its files."""
    folder = Path(folder).expanduser().absolute()
    if family not in BY_NAME:
        raise NewError(f"family is {family!r}: choose one of {', '.join(BY_NAME)}")
    refuse_name(name)
    refuse_place(folder)
    model_type = model_type_of(name)
    code = package_code(f"tformer_{family}")
    texts = own_texts(BY_NAME[family], name, model_type)
    if taken := sorted(code.keys() & texts.keys()):
        raise NewError(f"name is {name!r}, whose file would be our {taken[0]}: choose another")
    for file, text in texts.items():
        refuse_clashing_classes(name, file, text)
    texts["README.md"] = readme(folder.name, BY_NAME[family], name, model_type)
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
    """Return `my_model` for `MyModel`."""
    return WORDS.sub("_", name).lower()


def own_texts(family: Family, name: str, model_type: str) -> dict[str, str]:
    """Return the files to change, by name.

    The templates are written for the decoder, and its names are replaced by those of the family.
    An encoder-decoder has a modeling file of its own.
    """
    names = {
        "AutoModelForCausalLM": family.usual_auto,
        "ForCausalLM": family.head.removeprefix(family.prefix),
        "Decoder": family.prefix.removeprefix("Tformer"),
        "_decoder": f"_{family.name}",
    }
    texts = {}
    for file in ("__init__.py", "configuration_mine.py", "modeling_mine.py", "test_mine.py"):
        text = (TEMPLATES / file).read_text(encoding="utf-8")
        text = text if family.usual_auto == "AutoModelForCausalLM" else LABEL_SHIFT.sub("", text)
        for decoders, ours in names.items():
            text = text.replace(decoders, ours)
        texts[file] = text
    if family.name == "seq2seq":
        texts["modeling_mine.py"] = (TEMPLATES / "modeling_mine_seq2seq.py").read_text("utf-8")
    return {
        file.replace("mine", model_type): re.sub(
            r"(?<![a-z])mine(?![a-z])", model_type, text.replace("Mine", name)
        )
        for file, text in texts.items()
    }


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
    """Refuse a folder that is not empty, or whose name Python cannot import or has already."""
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
    places = [] if found is None else list(found.submodule_search_locations or [found.origin or ""])
    return any(Path(place).resolve() != folder.resolve() for place in places if place)


def refuse_clashing_classes(name: str, file: str, text: str) -> None:
    """Refuse a name that gives a class the name of one that its file imports."""
    tree = ast.parse(text)
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    imported = {alias.name for node in imports for alias in node.names}
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    if both := sorted(imported & defined):
        raise NewError(f"name is {name!r}, and {both[0]} is a class of ours: choose another")
