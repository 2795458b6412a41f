"""What can be said of a model folder without running any of its code.

Each check takes the `Folder` and yields (verdict, detail): nothing, or one line for each fault. One
that finds no fault says in one line what it looked at.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from .folder import Folder
from .source_code import COME_ALONG, KINDS, import_fault, is_foreign, syntax_fault

PICKLES = (".bin", ".ckpt", ".pkl", ".pt", ".pth")
SPECIAL_TOKENS = ("pad_token", "bos_token", "eos_token")


def check_auto_map(folder: Folder) -> Iterator[tuple[str, str]]:
    """Every Auto class of the map leads to a class in a file of this folder."""
    if not isinstance(folder.config.get("auto_map"), dict):
        has_code = any(folder.path.glob("*.py"))
        yield (
            "fail" if has_code else "warn",
            "config.json has no auto_map, so only transformers' own classes can open this: "
            "register the classes with register_for_auto_class and save again",
        )
        return
    named = {auto for file, auto, _ in folder.references if file == "config.json"}
    if "AutoConfig" not in named:
        yield "fail", "AutoConfig is not named, so nothing can read the configuration: name it"
    if "AutoModel" not in named:
        yield (
            "warn",
            "AutoModel is not named, so vLLM and SGLang cannot open it: name it",
        )
    for file, auto, reference in folder.references:
        if fault := reference_fault(folder, reference):
            yield "fail", f"{file} names {reference!r} for {auto}, but {fault}"
    yield "ok", ", ".join(sorted(named))


def reference_fault(folder: Folder, reference: object) -> str | None:
    if not isinstance(reference, str) or reference.rpartition("--")[2].count(".") != 1:
        return "a reference has the form module.Class"
    if "--" in reference:
        return "that is in another repository, which may change or vanish: copy the code here"
    module, name = reference.split(".")
    source = next((s for s in folder.sources if s.path.name == f"{module}.py"), None)
    if source is None:
        return f"{module}.py is missing: save the model again from where its code is"
    if source in folder.parsed and not defines(source.tree, name):
        return f"{module}.py has no class {name}: correct the map or the name"
    return None


def defines(tree: ast.Module, name: str) -> bool:
    """Whether a name stands at the top of a file: a class, or something imported or assigned."""
    for node in tree.body:
        names = [getattr(node, "name", None)]
        names += [a.asname or a.name for a in getattr(node, "names", ()) if hasattr(a, "asname")]
        names += [getattr(target, "id", None) for target in getattr(node, "targets", ())]
        if name in names:
            return True
    return False


def check_syntax(folder: Folder) -> Iterator[tuple[str, str]]:
    """The code can be read."""
    for source in folder.sources:
        if fault := syntax_fault(source):
            yield "fail", f"{fault}: this file cannot be imported"
    if not folder.sources:
        yield "skip", "there is no code that loading would run"
        return
    loaded = {source.path.name for source in folder.sources}
    others = sorted(path.name for path in folder.path.glob("*.py") if path.name not in loaded)
    aside = f"; not part of the model, not read: {few(others)}" if others else ""
    yield "ok", f"{few(sorted(loaded))}{aside}"


def check_relative_imports(folder: Folder) -> Iterator[tuple[str, str]]:
    """Every sibling that is imported lies beside its reader, where transformers looks for it."""
    count = 0
    for source in folder.parsed:
        for line, module in source.relative_imports():
            count += 1
            if fault := import_fault(folder.path, module):
                yield "fail", f"{source.path.name}:{line}: {fault}"
    yield "ok", f"{count}, all in this folder"


def check_absolute_imports(folder: Folder) -> Iterator[tuple[str, str]]:
    """Nothing has to be installed beyond torch and transformers."""
    places = defaultdict(list)
    for source in folder.parsed:
        for line, module, guarded in source.absolute_imports():
            if is_foreign(module):
                places[module, guarded].append(f"{source.path.name}:{line}")
    for (module, guarded), where in sorted(places.items()):
        if guarded:
            yield "warn", f"{few(where)}: {module} is optional: results may differ where it is not"
        elif module in COME_ALONG:
            yield "warn", f"{few(where)}: {module} comes with transformers, but not by promise"
        else:
            yield "fail", f"{few(where)}: {module} has to be installed: do without, or use `try:`"
    yield "ok", "the standard library, torch and transformers"


def check_safety(folder: Folder) -> Iterator[tuple[str, str]]:
    """The code does nothing that someone who loads a model would not expect."""
    places = defaultdict(set)
    for source in folder.parsed:
        for kind, line, what in source.unsafe():
            places[kind].add((source.path.name, line, what))
    for kind, (verdict, does, remedy) in KINDS.items():
        if where := [f"{file}:{line} {what}" for file, line, what in sorted(places[kind])]:
            yield verdict, f"{kind}: {few(where)} {does}: {remedy}"
    yield "ok", "no network, subprocess, eval, pickle, environment or file writes, global flags"


def check_attention_kernel(folder: Folder) -> Iterator[tuple[str, str]]:
    """The configuration does not choose code to download."""
    for key, value in attention_choices(folder.config):
        if "/" in value or ":" in value:
            yield (
                "fail",
                f"{key} is {value!r} in config.json, which downloads and runs code from there: "
                "remove the key",
            )
    yield "ok", "no code is chosen by config.json"


def attention_choices(node: object, key: str = "") -> Iterator[tuple[str, str]]:
    """(key, text) of everything below a key about the attention implementation."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from attention_choices(value, name if "attn_implementation" in name else key)
    elif isinstance(node, list):
        for value in node:
            yield from attention_choices(value, key)
    elif key and isinstance(node, str):
        yield key, node


def check_weights(folder: Folder) -> Iterator[tuple[str, str]]:
    """Weights are safetensors, all of them, and no pickle lies where one is loaded by mistake."""
    tensors = sorted(path.name for path in folder.path.glob("*.safetensors"))
    pickles = sorted(path.name for path in folder.path.iterdir() if path.suffix in PICKLES)
    if pickles:
        yield (
            "warn" if tensors else "fail",
            f"{few(pickles)}: a pickle can run anything when it is opened: "
            + ("remove it" if tensors else "save the model again, as safetensors"),
        )
    elif not tensors:
        yield "fail", "there are no weights: save the model with save_pretrained"
    shards = set(folder.read_json("model.safetensors.index.json").get("weight_map", {}).values())
    if missing := sorted(shards - set(tensors)):
        yield "fail", f"{few(missing)} of model.safetensors.index.json are missing: add them"
    for name in tensors:
        if fault := safetensors_fault(folder.path / name):
            yield "fail", f"{name} cannot be read ({fault}): save or download it again"
    yield "ok", few(tensors)


def safetensors_fault(path: Path) -> str | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt"):
            return None
    except (SafetensorError, OSError) as error:
        return str(error).splitlines()[0]


def check_tokenizer(folder: Folder) -> Iterator[tuple[str, str]]:
    """The tokenizer needs no trust, and its special ids are the configuration's."""
    tokenizer = folder.read_json("tokenizer_config.json")
    if not tokenizer:
        yield "skip", "there is no tokenizer_config.json"
        return
    if tokenizer.get("auto_map"):
        yield (
            "warn",
            "it brings its own code, so AutoTokenizer needs trust_remote_code: convert it to "
            "tokenizer.json, which transformers reads itself",
        )
    if not tokenizer.get("tokenizer_class"):
        yield "warn", "tokenizer_config.json has no tokenizer_class: save it with save_pretrained"
    ids = token_ids(folder.read_json("tokenizer.json"))
    for name in SPECIAL_TOKENS:
        token, expected = tokenizer.get(name), folder.config.get(f"{name}_id")
        token = token.get("content") if isinstance(token, dict) else token
        expected = expected if isinstance(expected, list) else [expected]
        if token in ids and expected != [None] and ids[token] not in expected:
            yield (
                "fail",
                f"{name} {token!r} is {ids[token]} in tokenizer.json, but {name}_id is "
                f"{few(map(str, expected))} in config.json: make them agree",
            )
    yield "ok", f"{tokenizer.get('tokenizer_class')}, special ids as in config.json"


def token_ids(content: dict) -> dict[str, int]:
    """token → id, of those that tokenizer.json lists by name."""
    vocabulary = content.get("model", {}).get("vocab", {})
    ids = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    return ids | {token["content"]: token["id"] for token in content.get("added_tokens", ())}


CHECKS = {
    "auto_map": check_auto_map,
    "syntax": check_syntax,
    "relative imports": check_relative_imports,
    "absolute imports": check_absolute_imports,
    "safety": check_safety,
    "attention kernel": check_attention_kernel,
    "weights": check_weights,
    "tokenizer": check_tokenizer,
}


def static_findings(folder: Folder) -> Iterator[tuple[str, str, str]]:
    """(name, verdict, detail) of every check; its closing `ok` only where it found no fault."""
    for name, check in CHECKS.items():
        lines = list(check(folder))
        faults = [line for line in lines if line[0] != "ok"]
        yield from ((name, *line) for line in faults or lines)


def few(names: Iterable[str], limit: int = 5) -> str:
    """The first names of many, as text."""
    names = list(names)
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
