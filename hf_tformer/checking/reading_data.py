"""Check the JSON files, the weights and the tokenizer of a folder."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from .findings import few
from .folder import NEIGHBOURS, Folder, code_files, values_below
from .judging import DTYPE

PICKLES = re.compile(
    r"\.(bin|ckpt|pkl|pickle|pt|pth|joblib|dill|npy|npz|nemo|mar|pdparams|tar)$", re.IGNORECASE
)
NATIVE = re.compile(r"\.(so(\.\d+)*|pyd|dll|dylib|pyc|pyo|egg|whl)$", re.IGNORECASE)
# Classes that a configuration may have imported by name: those of torch's layers, and neighbours.
LAYERS = re.compile(r"torch\.nn(\.[a-z_]+)*\.[A-Z]\w*")
IMPORTED = ("activation_function", "activation_fn", "tokenizer_class")
# Files with comments in them, which no loader reads under these names.
OF_EDITORS = {f".vscode/{x}.json" for x in ("launch", "settings", "tasks", "extensions")}
SPECIAL_TOKENS = ("pad_token", "bos_token", "eos_token")
IDS = (*(f"{name}_id" for name in SPECIAL_TOKENS), "decoder_start_token_id")
SIZES = ("vocab_size", "source_vocab_size", "target_vocab_size", "decoder_vocab_size")
QUOTED = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?|true|false|none|null", re.IGNORECASE)
POINTER = b"version https://git-lfs"


def check_files(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that every entry is a file of this folder that can be read."""
    documents = folder.documents
    for name, fault in sorted({**folder.files.faults, **folder.unread}.items()):
        if name in OF_EDITORS and name not in folder.files.faults:
            yield "warn", f"{name} belongs to an editor, and no model needs it: leave it out"
        else:
            yield "fail", f"{name} {fault}"
    native = [name for name in sorted(folder.files.names) if NATIVE.search(name)]
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
        elif purpose.startswith("module ") and not any(
            name in folder.files.names for name in code_files((file, purpose, reference))
        ):
            yield "fail", f"{file} names {str(reference)!r}, whose code is not here: copy it here"
    for line in folder.telling:
        yield from loaded_by(*line)
    yield "ok", "all code is in this folder"


def loaded_by(file: str, key: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield what a key of a JSON file has loaded that is not in the folder."""
    if not value:
        return
    if key in ("dtype", "torch_dtype") and isinstance(value, str) and not DTYPE.fullmatch(value):
        yield "fail", f"{file} has {value!r} taken from torch as {key}: name a dtype, as float32"
    elif key == "attribute_map":
        yield "fail", f"{file} has attributes stand for others by {key}: remove the key"
    elif key.endswith("trust_remote_code"):
        yield "warn", f"{file} asks for {key}: remove the key"
    elif key in ("backbone", "audio_tokenizer_name_or_path") and isinstance(value, str):
        yield "warn", f"{file} has {value!r} loaded as {key}, from elsewhere: see that it is yours"
    elif key in IMPORTED and isinstance(value, str) and "." in value:
        if not LAYERS.fullmatch(value) and not NEIGHBOURS.fullmatch(value):
            yield "fail", f"{file} has {value!r} imported as {key}: name a class of torch.nn"
    elif PurePosixPath(file).name != "adapter_config.json":
        return
    elif key == "base_model_name_or_path":
        yield (
            "fail",
            f"{file} has the model {value!r} loaded instead of this one, with its code: "
            "move the adapter into a folder of its own",
        )
    elif key in ("parent_library", "megatron_config") or (
        key == "megatron_core" and value != "megatron.core"  # which peft always writes
    ):
        yield "fail", f"{file} has {value!r} imported as {key}: remove the key"


def check_attention_kernel(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that no configuration names code to download."""
    for name, key, value in folder.telling:
        if name.endswith("config.json") and "_implementation" in key:
            for choice in (text for _, text in values_below(value) if isinstance(text, str)):
                if "/" in choice or ":" in choice:
                    yield (
                        "fail",
                        f"{key} is {choice!r} in {name}, which downloads and runs code from "
                        "there: remove the key",
                    )
    yield "ok", "no code is chosen by config.json"


def check_configuration(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check the values in config.json and generation_config.json: texts, special ids, labels."""
    for key, value in folder.config.items():
        if (
            isinstance(value, str)
            and QUOTED.fullmatch(value)
            and not re.search("version|name", key)
        ):
            yield "warn", f"{key} of config.json is the text {value!r}: write it without quotes"
    sizes = [size for key, size in values_below(folder.config) if key in SIZES]
    end = max((size for size in sizes if isinstance(size, int)), default=None)
    for file in ("config.json", "generation_config.json"):
        for field, given in folder.read_json(file).items():
            for one in (given if isinstance(given, list) else [given]) if field in IDS else ():
                if isinstance(one, str):
                    yield "fail", f"{field} of {file} is the text {one!r}: write the token's number"
                elif isinstance(one, int) and end is not None and one >= end:
                    verdict = "fail" if one > end else "warn"  # some add one row for padding
                    remedy = "name a token that there is, or null"
                    yield verdict, f"{field} of {file} is {one}, but vocab_size is {end}: {remedy}"
    yield from label_faults(folder.config.get("id2label"), folder.config.get("label2id"))
    yield "ok", "special ids below vocab_size, labels in order"


def label_faults(names: object, numbers: object) -> Iterator[tuple[str, str]]:
    if not isinstance(names, dict):
        return
    if sorted(map(str, names)) != sorted(map(str, range(len(names)))):
        yield "fail", f"id2label of config.json has the numbers {few(names)}: count them from 0"
    turned = numbers.items() if isinstance(numbers, dict) else ()
    if other := [name for name, number in turned if names.get(str(number)) != name]:
        yield "fail", f"label2id and id2label of config.json disagree on {few(other)}: write one"


def check_weights(folder: Folder) -> Iterator[tuple[str, str]]:
    """Check that all weights are there, as safetensors and without a pickle beside them."""
    here = folder.files.named(".safetensors")
    others = [name for name in folder.left_out if name.endswith(".safetensors") and "/" not in name]
    tensors, names = [*here, *others], sorted({*folder.files.names, *folder.left_out})
    pickles = [name for name in names if PICKLES.search(name)]
    alone = not tensors and any("/" not in name for name in pickles)
    if pickles:
        yield (
            "fail" if alone else "warn",
            f"{few(pickles)}: a pickle can run anything when it is opened: "
            + ("save the model again, as safetensors" if alone else "remove it"),
        )
    if not tensors and not alone:
        yield "fail", "there are no weights: save the model with save_pretrained"
    index = folder.read_json("model.safetensors.index.json").get("weight_map")
    shards = index.values() if isinstance(index, dict) else ()
    if missing := sorted({str(shard) for shard in shards} - set(tensors)):
        yield "fail", f"model.safetensors.index.json names what is missing: {few(missing)}: add it"
    if folder.left_out:
        yield "skip", f"{few(folder.left_out)}: not downloaded, as nothing is run: not judged"
    for name in here:
        if fault := safetensors_fault(folder.path / name):
            yield "fail", f"{name} cannot be read ({fault}): save or download it again"
    yield "ok", few(tensors)


def safetensors_fault(path: Path) -> str | None:
    from safetensors import SafetensorError, safe_open

    try:
        with path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                return "it is a pointer of Git LFS, which `git lfs pull` replaces by the file"
        with safe_open(path, "np"):
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
