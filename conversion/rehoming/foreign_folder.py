"""A folder with code of others, as it can be known without running any of it."""

import ast
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..engine.aliases import Fields
from ..engine.checkpoints import Checkpoint, open_checkpoint, read_json
from ..engine.errors import ConversionError

LENGTHS = (7, 1, 33)  # of the prompts; text is written after the first
TEXT = 12  # tokens that are written
LENGTH_FIELDS = (
    *("max_position_embeddings", "seq_length", "n_positions", "max_seq_len"),
    *("model_max_length", "max_sequence_length"),
)
# The heads for which answers can be compared, the most telling first.
AUTOS = ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModel")


@dataclass(frozen=True)
class ForeignFolder:
    """Configuration, code and weights of a folder, none of which is executed."""

    path: Path

    @cached_property
    def config(self) -> Fields:
        config = read_json(self.path / "config.json")
        if not isinstance(config.get("auto_map"), dict):
            raise ConversionError(
                f"{self.path}/config.json names no code (auto_map): from_pretrained opens such a "
                "folder as it is"
            )
        return config

    @cached_property
    def sources(self) -> dict[str, str]:
        """The text of each file of code in the folder."""
        files = sorted(self.path.glob("*.py"))
        return {file.name: file.read_text(encoding="utf-8", errors="replace") for file in files}

    @cached_property
    def code(self) -> str:
        """The text of the files that config.json names."""
        modules = {str(place).partition(".")[0] for place in self.config["auto_map"].values()}
        return "\n".join(self.sources.get(f"{name}.py", "") for name in sorted(modules))

    @cached_property
    def auto(self) -> str:
        """The Auto class whose model is compared: that of the architecture, if it is told."""
        known = self.config["auto_map"]
        offered = [auto for auto in AUTOS if auto in known]
        named = self.config.get("architectures") or [""]
        matching = [auto for auto in offered if str(known[auto]).endswith(f".{named[0]}")]
        found = matching or offered
        if not found:
            raise ConversionError(
                f"auto_map of {self.path} names {', '.join(known)}: only {', '.join(AUTOS)} can be "
                "compared"
            )
        return found[0]

    @cached_property
    def fields(self) -> Fields:
        """The fields of config.json over the defaults that the code gives its configuration."""
        module, _, name = str(self.config["auto_map"].get("AutoConfig", "")).rpartition(".")
        return {**defaults_of(self.sources.get(f"{module}.py", ""), name), **self.config}

    @cached_property
    def prompts(self) -> list[list[int]]:
        """Ids without the first of the vocabulary, many of which have a role."""
        fields = self.fields
        sizes = [fields.get(name) for name in ("vocab_size", "padded_vocab_size")]
        rows = min([size for size in sizes if isinstance(size, int)] or [100])
        lengths = [fields.get(name) for name in LENGTH_FIELDS]
        longest = min([size for size in lengths if isinstance(size, int)] or [2048]) - TEXT
        # The first ChatGLM looks for both at the end of a prompt.
        ends = [fields[name] for name in ("gmask_token_id", "bos_token_id") if name in fields]
        ends = ends if "gmask_token_id" in fields else []
        drawn = random.Random(0)
        first = min(4, rows - 1)
        return [
            [drawn.randrange(first, rows) for _ in range(max(1, min(length, longest)))] + ends
            for length in LENGTHS
        ]

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return open_checkpoint(self.path)


def defaults_of(source: str, name: str) -> dict[str, Any]:
    """Return the defaults of a class's __init__ that are plain values."""
    try:
        classes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef)]
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, Any] = {}
    for node in (n for one in classes if one.name == name for n in one.body):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            arguments = [*node.args.args, *node.args.kwonlyargs]
            values = [*node.args.defaults, *node.args.kw_defaults]
            pairs = zip(reversed(arguments), reversed(values), strict=False)
            found = {arg.arg: literal(value) for arg, value in pairs if is_literal(value)}
    return found


def is_literal(node: ast.expr | None) -> bool:
    try:
        ast.literal_eval(node)  # type: ignore[arg-type]  # None is refused, too
    except (ValueError, TypeError):
        return False
    return True


def literal(node: Any) -> Any:
    return ast.literal_eval(node)
