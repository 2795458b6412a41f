"""The files beside the weights that conversion does not know: code of a tokenizer, and its data."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..engine.checkpoints import read_json
from .foreign_folder import ForeignFolder

TOKENIZER_CONFIG = "tokenizer_config.json"
WEIGHTS = re.compile(r".*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|gguf|onnx)(\.index\.json)?")
VOCABULARIES = ("*.model", "*.tiktoken", "*.vocab")
LOCAL_IMPORT = re.compile(r"^\s*from \.(\w+) import ", re.M)


def carry_tokenizer_code(foreign: ForeignFolder, staged: Path) -> Iterator[str]:
    """Carry a tokenizer that has code of its own, and say so."""
    path = foreign.path / TOKENIZER_CONFIG
    named = read_json(path).get("auto_map", {}) if path.is_file() else {}
    places = named.get("AutoTokenizer") if isinstance(named, dict) else named
    modules = {str(place).partition(".")[0] for place in places or () if place}
    needed = {name for name in modules if f"{name}.py" in foreign.sources}
    for name in tuple(needed):
        found = LOCAL_IMPORT.findall(foreign.sources[f"{name}.py"])
        needed |= {other for other in found if f"{other}.py" in foreign.sources}
    if not needed:
        return
    for name in sorted(needed):
        (staged / f"{name}.py").write_text(foreign.sources[f"{name}.py"], encoding="utf-8")
    for pattern in VOCABULARIES:
        for file in foreign.path.glob(pattern):
            shutil.copyfile(file, staged / file.name)
    files = ", ".join(f"{name}.py" for name in sorted(needed))
    yield (
        f"the tokenizer has code of its own ({files}), which was carried as it is: AutoTokenizer "
        "needs trust_remote_code=True"
    )


def carry_everything(foreign: ForeignFolder, staged: Path) -> None:
    """Carry every file of a folder except its weights, hidden files and links that lead out."""
    for file in sorted(foreign.path.rglob("*")):
        place = file.relative_to(foreign.path)
        is_hidden = any(part.startswith(".") for part in place.parts)
        inside = file.resolve().is_relative_to(foreign.path)
        if file.is_file() and inside and not is_hidden and not WEIGHTS.fullmatch(file.name):
            (staged / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, staged / place)
