"""Find where a name of an installed library is defined, by reading the library's files.

transformers.models.wav2vec2.processing_wav2vec2.Path → pathlib.Path
transformers.LlamaConfig.model_type → transformers.models.llama.configuration_llama.LlamaConfig...

Nothing is imported. A name that cannot be found, perhaps because the library is not installed or
fills its namespace when it runs, has no definition.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

LIBRARIES = {"torch", "transformers", "numpy", "PIL", "tqdm", "safetensors", "packaging"}
STEPS = 12  # from import to import
ALL_MODELS = "transformers.models"  # takes the names of 400 folders: its models are asked directly
HERE = ""  # in place of an origin: the module itself defines the name


@cache
def place_of(library: str) -> Path | None:
    spec = PathFinder.find_spec(library) if library in LIBRARIES else None
    return Path(spec.submodule_search_locations[0]) if spec and spec.origin else None  # type: ignore[index]


@cache
def module_file(module: str) -> Path | None:
    """Return the file of Python code of a dotted module, or None."""
    library, *parts = module.split(".")
    place = place_of(library)
    if place is None or not all(part.isidentifier() for part in parts):
        return None
    path = place.joinpath(*parts)
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


@cache
def text_of(module: str) -> str:
    file = module_file(module)
    return file.read_text(encoding="utf-8", errors="replace") if file else ""


@cache
def tensor_functions() -> frozenset[str]:
    """Return the functions of `torch` that compute with tensors, by torch's own list of them."""
    place = place_of("torch")
    file = place / "_C" / "_VariableFunctions.pyi" if place else None
    text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    return frozenset(re.findall(r"(?m)^def ([a-z]\w*)\(", text)) - {"from_file"}


@cache
def origins(module: str) -> tuple[dict[str, str], list[str]]:
    """Return the origin of each name of a module, and the modules of which it takes all names."""
    found: dict[str, str] = {}
    stars: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about the library
        tree = ast.parse(text_of(module))
    for node in statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                found.setdefault(alias.asname or top, alias.name if alias.asname else top)
        elif isinstance(node, ast.ImportFrom):
            origin = package_of(module, node)
            for alias in node.names:
                if alias.name == "*":
                    stars.append(origin)
                else:
                    found.setdefault(alias.asname or alias.name, f"{origin}.{alias.name}")
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = HERE
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, other_name(node.value, found))
    return found, stars


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module, with those in its blocks but not those in functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield child
            if not isinstance(child, ast.FunctionDef | ast.ClassDef):
                yield from statements(child)


def other_name(value: ast.expr | None, known: dict[str, str]) -> str:
    """Return the origin in `name = module.other`, or HERE."""
    parts = []
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    origin = known.get(value.id, HERE) if isinstance(value, ast.Name) else HERE
    return ".".join([origin, *reversed(parts)]) if origin else HERE


def package_of(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    file = module_file(module)
    parts = module.split(".")
    up = node.level - (file is not None and file.name == "__init__.py")
    return ".".join([*parts[: len(parts) - up], *filter(None, [node.module])])


@cache
def origin_of(module: str, name: str, steps: int) -> str | None:
    """Return the dotted origin of a name of a module, HERE, or None if it was not found."""
    if re.search(rf"(?m)^(class|def|async def) {re.escape(name)}\b", text_of(module)):
        return HERE
    found, stars = origins(module)
    if name in found:
        return found[name]
    if module_file(f"{module}.{name}"):
        return f"{module}.{name}"
    if module == ALL_MODELS:
        return None
    followed = (star for star in stars if star != ALL_MODELS and module_file(star))
    origins_there = (defined(f"{star}.{name}", steps - 1) for star in followed)
    return next(filter(None, origins_there), None)


@cache
def defined(name: str, steps: int = STEPS) -> str | None:
    """Return the dotted name under which a name of a library is defined, or None."""
    module, *rest = name.split(".")
    if module not in LIBRARIES:
        return name
    while rest and module_file(module) and steps:
        origin = origin_of(module, rest[0], steps)
        if origin is None or origin == HERE:
            return name if origin == HERE else None
        if origin != f"{module}.{rest[0]}" or not module_file(origin):
            return defined(".".join([origin, *rest[1:]]), steps - 1)
        module = origin
        rest.pop(0)
    return module if not rest and module_file(module) else None
