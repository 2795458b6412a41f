"""Check the JSON files, the weights and the tokenizer of a folder."""

from collections.abc import Iterator
from pathlib import Path

from .files import few
from .folder import Folder, code_file, values_below

PICKLES = (".bin", ".ckpt", ".pkl", ".pickle", ".pt", ".pth", ".joblib")
NATIVE = (".so", ".pyd", ".dll", ".dylib", ".pyc", ".pyo", ".egg", ".whl")
SPECIAL_TOKENS = ("pad_token", "bos_token", "eos_token")


def check_files(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that every entry is a file of this folder that can be read."""
    documents = folder.documents
    for name, fault in sorted({**folder.files.faults, **folder.unread}.items()):
        yield "fail", f"{name} {fault}"
    native = [name for name in sorted(folder.files.names) if Path(name).suffix in NATIVE]
    if native:
        yield "warn", f"{few(native)}: nobody can read these: see that nothing loads them"
    yield "ok", f"{len(folder.files.names)}, {len(documents)} of them JSON"


def check_foreign_code(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that no JSON file has code loaded from elsewhere."""
    for file, purpose, reference in folder.references:
        if "--" in str(reference):
            yield (
                "fail",
                f"{file} names {reference!r} for {purpose}, which is in another repository, and "
                "may change or vanish: copy the code here",
            )
        elif (
            file == "modules.json"
            and code_file((file, purpose, reference)) not in folder.files.names
        ):
            yield "fail", f"{file} names {str(reference)!r}, whose code is not here: copy it here"
    for name, content in folder.documents.items():
        for key, value in values_below(content):
            if key == "trust_remote_code" and value:
                yield "warn", f"{name} asks for trust_remote_code: remove the key"
            if key == "base_model_name_or_path" and value and name == "adapter_config.json":
                yield (
                    "fail",
                    f"{name} has the model {value!r} loaded instead of this one, with its code: "
                    "move the adapter into a folder of its own",
                )
            if key == "parent_library" and value and name == "adapter_config.json":
                yield "fail", f"{name} has {value!r} imported as parent_library: remove the key"
    yield "ok", "all code is in this folder"


def check_attention_kernel(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that no configuration names code to download."""
    for name, content in folder.documents.items():
        for key, value in attention_choices(content) if name.endswith("config.json") else ():
            if "/" in value or ":" in value:
                yield (
                    "fail",
                    f"{key} is {value!r} in {name}, which downloads and runs code from there: "
                    "remove the key",
                )
    yield "ok", "no code is chosen by config.json"


def attention_choices(content: object) -> Iterator[tuple[str, str]]:
    """Yield (key, string) of everything below a key for the attention implementation."""
    for key, value in values_below(content):
        if "attn_implementation" in key or "experts_implementation" in key:
            yield from ((key, name) for _, name in values_below(value) if isinstance(name, str))


def check_weights(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that all weights are there, as safetensors and without a pickle beside them."""
    tensors = folder.files.named(".safetensors")
    pickles = [name for ending in PICKLES for name in folder.files.named(ending)]
    if pickles:
        yield (
            "warn" if tensors else "fail",
            f"{few(pickles)}: a pickle can run anything when it is opened: "
            + ("remove it" if tensors else "save the model again, as safetensors"),
        )
    elif not tensors:
        yield "fail", "there are no weights: save the model with save_pretrained"
    index = folder.read_json("model.safetensors.index.json").get("weight_map")
    shards = index.values() if isinstance(index, dict) else ()
    if missing := sorted({str(shard) for shard in shards} - set(tensors)):
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
    """Check that the tokenizer needs no trust, and has the special ids of the configuration."""
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
        if (
            isinstance(token, str)
            and token in ids
            and expected != [None]
            and ids[token] not in expected
        ):
            yield (
                "fail",
                f"{name} {token!r} is {ids[token]} in tokenizer.json, but {name}_id is "
                f"{few(map(str, expected))} in config.json: make them agree",
            )
    yield "ok", f"{tokenizer.get('tokenizer_class')}, special ids as in config.json"


def token_ids(content: dict) -> dict[str, object]:
    """Return the id of each token that tokenizer.json lists by name."""
    model, added = content.get("model"), content.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    for token in added if isinstance(added, list) else ():
        if isinstance(token, dict) and isinstance(token.get("content"), str):
            ids[token["content"]] = token.get("id")
    return ids
