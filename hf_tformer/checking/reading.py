"""Check a model folder without running any of its code.

Each check takes the `Folder` and yields (verdict, detail) for each fault. It ends with an "ok" that
says what it looked at, which counts only if there was no fault.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator

from .findings import LISTED, NOT_UNDERSTOOD, READ, Finding, few
from .folder import MODEL_CODE, Folder, code_files
from .names import KINDS
from .reading_data import (
    check_attention_kernel,
    check_configuration,
    check_files,
    check_foreign_code,
    check_tokenizer,
    check_weights,
)
from .references import references
from .source_code import ENCODED, import_fault, is_foreign
from .strings import evaluated_comments
from .texts import TooEntangledError

REQUIREMENTS = "custom_generate/requirements.txt"
# The packages to install for a module of another name.
PACKAGES = {
    **{"fla": "flash-linear-attention", "PIL": "pillow", "cv2": "opencv-python"},
    **{"sklearn": "scikit-learn", "skimage": "scikit-image", "OpenSSL": "pyopenssl"},
}
ADD = "add it to auto_map in config.json"
# The checks that look at code, and say nothing of a folder whose code cannot be read.
OF_CODE = ("relative imports", "absolute imports", "tied names", "safety")
OF_IMAGES = {"PIL", "torchvision"}  # what transformers' own image processors need, too


def check_auto_map(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that every Auto class of the map leads to a class in a file of this folder."""
    named = {auto for file, auto, _ in folder.references if file == "config.json"}
    if not isinstance(folder.config.get("auto_map"), dict):
        yield (
            "fail" if folder.files.named(".py") else "warn",
            "config.json has no auto_map, so only transformers' own classes can open this: "
            "register the classes with register_for_auto_class and save again",
        )
    elif "AutoConfig" not in named:
        yield "fail", f"AutoConfig is not named, so nothing can read the configuration: {ADD}"
    elif "AutoModel" not in named:
        yield "warn", f"AutoModel is not named, so vLLM and SGLang cannot open it: {ADD}"
    for file, content in folder.documents.items():
        auto_map = content.get("auto_map") if isinstance(content, dict) else None
        if not isinstance(auto_map, (dict, type(None))):
            yield "fail", f"auto_map of {file} is no object of class names: save it again"
    if fault := type_fault(folder):
        yield "warn", fault
    for file, purpose, reference in folder.references:
        if fault := reference_fault(folder, file, reference):
            yield "fail", f"{file} names {reference!r} for {purpose}, but {fault}"
    yield "ok", ", ".join(sorted(named))


def type_fault(folder: Folder) -> str | None:
    """Compare the model_type of config.json with that of the class that reads it."""
    autos, written = folder.config.get("auto_map"), folder.config.get("model_type")
    file, _, name = str(autos.get("AutoConfig") if isinstance(autos, dict) else "").partition(".")
    source = folder.all_sources.get(f"{file}.py")
    nodes = ast.walk(source.tree) if source and not source.fault else ()
    classes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name]
    for line in [line for node in classes for line in node.body]:
        value = getattr(getattr(line, "value", None), "value", None)
        if assigned(line) == ["model_type"] and value != written and isinstance(value, str):
            remedy = "write the same in both, or other programs take it for another model"
            return f"model_type is {written!r} in config.json and {value!r} in {name}: {remedy}"
    return None


def assigned(node: ast.AST) -> list[str | None]:
    """Return the names that an assignment binds, None for each target that is no name."""
    return [getattr(target, "id", None) for target in getattr(node, "targets", ())]


def reference_fault(folder: Folder, named_in: str, reference: object) -> str | None:
    if not isinstance(reference, str) or "." not in reference.rpartition("--")[2]:
        return "a reference has the form module.Class"
    if "--" in reference:
        return None  # check_foreign_code reports it
    files, name = code_files((named_in, "", reference)), reference.rpartition(".")[2]
    file = next((file for file in files if file in folder.all_sources), files[0])
    source = folder.all_sources.get(file)
    if source is None:
        return f"{file} is missing: save the model again from where its code is"
    if not source.fault and not defines(source.tree, name):
        return f"{file} has no class {name}: correct the map or the name"
    return None


def defines(tree: ast.Module, name: str) -> bool:
    """Return whether a file defines a name at its top: as a class, an import or an assignment."""
    for node in tree.body:
        names = [getattr(node, "name", None)]
        names += [a.asname or a.name for a in getattr(node, "names", ()) if hasattr(a, "asname")]
        names += assigned(node)
        if name in names:
            return True
    return False


def check_syntax(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that the code can be parsed."""
    loaded = sorted(source.name for source in folder.sources)
    others = sorted(folder.all_sources.keys() - set(loaded))
    for source in folder.all_sources.values():
        if source.fault and source.name in loaded:
            yield "fail", f"{source.fault}: this file cannot be imported"
        elif source.fault:
            yield "warn", f"{source.fault}: nothing that was found imports this file"
    if not folder.sources:
        yield "skip", f"there is no code that loading would run{others_named(others)}"
        return
    yield "ok", f"{few(loaded)}{others_named(others)}"


def others_named(others: list[str]) -> str:
    return f"; not reached by loading: {few(others)}" if others else ""


def check_relative_imports(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that imported siblings are in the same folder, where transformers looks for them."""
    count = 0
    for source in folder.parsed:
        for line, module in source.relative_imports():
            count += 1
            if fault := import_fault(source, module):
                yield "fail", f"{source.name}:{line}: {fault}"
    yield "ok", f"{count}, all in this folder"


def check_absolute_imports(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that no package has to be installed besides torch and transformers."""
    places: dict[str, dict[bool, list[str]]] = defaultdict(lambda: {True: [], False: []})
    for source in folder.parsed:
        for line, module, guarded in source.absolute_imports():
            if is_foreign(module):
                places[module][guarded].append(f"{source.name}:{line}")
    for module, found in sorted(places.items()):
        is_of_images = module in OF_IMAGES and all("processing" in at for at in found[False])
        name = f"{module} (the package {PACKAGES[module]})" if module in PACKAGES else module
        where = found[False] or found[True]
        if not found[False]:
            yield "warn", f"{few(where)}: {name} is optional: results may differ without it"
        elif is_of_images:
            yield "warn", f"{few(where)}: {name} is needed, as by transformers' own: tell users"
        else:
            yield (
                "fail",
                f"{few(where)}: {name} has to be installed by each user: do without, or import it "
                "in `try:` and give another way in `except ImportError:`",
            )
    if REQUIREMENTS in folder.files.names:
        yield "warn", f"{REQUIREMENTS} asks for packages: see which"
    yield "ok", "the standard library, torch and transformers"


def check_tied_names(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that no class names its tied weights by a list, which transformers 5 cannot read."""
    for source in folder.parsed:
        for node in ast.walk(source.tree):
            is_list = isinstance(getattr(node, "value", None), ast.List | ast.Tuple | ast.Set)
            if "_tied_weights_keys" in assigned(node) and is_list:
                yield (
                    "fail",
                    f"{source.name}:{getattr(node, 'lineno', 0)}: _tied_weights_keys is a list, "
                    "with which transformers 5 cannot save the model: write {target: source}",
                )
    yield "ok", "by a dict, or none"


def check_safety(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that the code refers to nothing dangerous.

    Files that loading does not reach are read, too, but cause no failure: scripts may do all that.
    Files that equal one of the installed package are known: they are read for the others' sake.
    """
    loaded = {source.name for source in folder.sources}
    readable = [source for source in folder.all_sources.values() if not source.fault]
    ours = Folder(MODEL_CODE).all_sources
    known = {s.name for s in readable if s.name in ours and s.content == ours[s.name].content}
    places = defaultdict(set)
    try:
        trees = {s.name: s.tree for s in readable if len(known) < len(readable)}
        for found in references(trees, folder.data if trees else {}):
            if found.file not in known:
                places[found.kind, found.file in loaded].add((found.file, found.line, found.what))
    except (RecursionError, TooEntangledError):
        yield "fail", "the code is too entangled to be read: nobody can say what it does"
    is_scripted = any("jit" in source.text for source in readable)
    for source in readable:
        for line, code in evaluated_comments(source.text) if is_scripted else ():
            places["eval", source.name in loaded].add((source.name, line, f"# type: {code}"))
        for line in source.hidden_lines():
            places["hidden text", source.name in loaded].add((source.name, line, "a character"))
    for source in folder.all_sources.values():
        if source.fault and ENCODED in source.fault:
            places["hidden text", source.name in loaded].add((source.name, 1, "an encoding"))
    for is_loaded in (True, False):
        for kind, (verdict, does, remedy) in KINDS.items():
            where = [
                f"{file}:{line} {what}" for file, line, what in sorted(places[kind, is_loaded])
            ]
            if where and is_loaded:
                yield verdict, f"{kind}: {few(where)} {does}: {remedy}"
            elif where and verdict == "fail":
                yield "warn", f"{kind}: {few(where)} {does}, but loading does not reach it"
    yield "ok", "no known danger"


CHECKS = {
    "files": check_files,
    "auto_map": check_auto_map,
    "configuration": check_configuration,
    "syntax": check_syntax,
    "relative imports": check_relative_imports,
    "absolute imports": check_absolute_imports,
    "tied names": check_tied_names,
    "safety": check_safety,
    "foreign code": check_foreign_code,
    "attention kernel": check_attention_kernel,
    "weights": check_weights,
    "tokenizer": check_tokenizer,
}


def static_findings(folder: Folder) -> Iterator[Finding]:
    """Yield the findings of every check: its faults, or else its closing "ok"."""
    unread = [source.name for source in folder.sources if source.fault]
    for name, check in CHECKS.items():
        lines = []
        LISTED.clear()
        try:
            for verdict, detail in check(folder):
                lines.append(Finding(name, verdict, detail, rests_on(name, detail), tuple(LISTED)))
                LISTED.clear()
        except Exception as error:  # an unforeseen value must not pass
            detail = f"cannot be judged ({type(error).__name__}: {error}): look for it"
            lines = [Finding(name, "fail", detail)]
        faults = [line for line in lines if line.verdict != "ok"]
        if unread and not faults and name in OF_CODE:
            lines = [Finding(name, "skip", f"{few(unread)} cannot be read: see syntax")]
        yield from faults or lines


def rests_on(name: str, detail: str) -> str:
    """Return whether a finding was read, or says that something was not understood."""
    is_open = name == "safety" and detail.startswith(f"{NOT_UNDERSTOOD}:")
    return NOT_UNDERSTOOD if is_open else READ
