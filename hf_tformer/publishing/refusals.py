"""Refuse a faulty folder before anything is sent, so that no reader finds the fault."""

from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open

import hf_tformer

from ..checking.folder import Folder
from ..checking.package_code import code_under, is_of_package
from ..families import FAMILIES
from ..file_integrity import fault_of_dtype, json_object, not_a_number
from ..opening import first_line
from .errors import PublishError

INDEX = "model.safetensors.index.json"


def refuse_incomplete(folder: Path) -> None:
    """Refuse missing code or weights, values that are no numbers, and ids that clash."""
    if not (folder / "config.json").exists():
        raise PublishError("there is no config.json: give a folder that save_pretrained wrote")
    config = read_json(folder / "config.json")
    refuse_wrong_configuration(folder, config)
    needed = {f"{module_of(reference)}.py" for reference in auto_map_of(config).values()}
    missing = sorted(name for name in needed if not (folder / name).exists())
    if missing:
        raise PublishError(f"{missing} are missing: save the model again with save_pretrained")
    if (folder / "generation_config.json").exists():
        read_json(folder / "generation_config.json")
    refuse_damaged_weights(folder)
    refuse_clashing_ids(folder, config)


def read_json(path: Path) -> dict:
    try:
        return json_object(path)
    except ValueError as error:
        raise PublishError(str(error).replace(str(path), path.name)) from error


def refuse_wrong_configuration(folder: Path, config: dict) -> None:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not code_under(Folder(folder)):
        raise PublishError(
            f"model_type is {model_type!r}: publish takes {' and '.join(FAMILIES)}, and models "
            "that are built on their code; for other models use their own push_to_hub"
        )
    if fault := fault_of_dtype(config):
        raise PublishError(fault)
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PublishError(f"architectures is {names!r} in config.json: name the class of the head")
    if not is_of_package(Folder(folder)):
        return  # only its own code reads it: that happens once it has been sent
    config_class = getattr(hf_tformer, FAMILIES[model_type].config)
    try:
        config_class.from_pretrained(folder)
    except (ValueError, TypeError, LookupError, ArithmeticError, StrictDataclassError) as error:
        while isinstance(error, StrictDataclassError) and error.__cause__ is not None:
            error = error.__cause__
        raise PublishError(f"config.json cannot be read: {first_line(error)}") from error


def auto_map_of(config: dict) -> dict[str, str]:
    auto_map = config.get("auto_map", {})
    if not isinstance(auto_map, dict):
        raise PublishError(f"auto_map is {auto_map!r} in config.json: save the model again")
    for auto, reference in auto_map.items():
        if not isinstance(reference, str) or not module_of(reference).isidentifier():
            raise PublishError(
                f"auto_map names {reference!r} for {auto}, which is no class in a file of this "
                "folder: save the model again with save_pretrained"
            )
    return auto_map


def module_of(reference: str) -> str:
    return reference.split(".")[0]


def refuse_damaged_weights(folder: Path) -> None:
    if not any(folder.glob("*.safetensors")):
        raise PublishError("there are no safetensors weights: save the model with save_pretrained")
    if (folder / INDEX).exists():
        parts = read_json(folder / INDEX).get("weight_map")
        named = set(map(str, parts.values())) if isinstance(parts, dict) else set()
        missing = sorted(named - {path.name for path in folder.iterdir()})
        if missing or not named:
            raise PublishError(f"{INDEX} names {missing or 'nothing'}: save the model again")
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 (a file, not a dict)
                    if found := not_a_number(tensors.get_tensor(name)):
                        raise PublishError(
                            f"{name} holds {found} in {path.name}, so the model computes nothing: "
                            "publish a checkpoint from before its training diverged"
                        )
        except SafetensorError as error:
            raise PublishError(
                f"{path.name} is truncated or no safetensors file ({error}): save the model again"
            ) from error


def refuse_clashing_ids(folder: Path, config: dict) -> None:
    if not (folder / "tokenizer_config.json").exists():
        return
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # such files fail in many ways
        raise PublishError(
            f"the tokenizer cannot be read ({type(error).__name__}: {first_line(error)}): save it "
            "again with save_pretrained"
        ) from error
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        ours, theirs = config.get(name), getattr(tokenizer, name)
        ours = ours if isinstance(ours, list) else [ours]
        if theirs is not None and ours != [None] and theirs not in ours:
            raise PublishError(
                f"{name} is {theirs} in the tokenizer but {config[name]} in the configuration: "
                "make them agree before anyone generates with them"
            )
    rows = max(config.get("vocab_size") or 0, config.get("source_vocab_size") or 0)
    if rows and len(tokenizer) > rows:
        raise PublishError(
            f"the tokenizer has {len(tokenizer)} tokens but vocab_size is {rows}: "
            "call model.resize_token_embeddings(len(tokenizer))"
        )
