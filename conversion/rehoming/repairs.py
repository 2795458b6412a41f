"""The repairs of code that no longer runs: each answers one error, and changes little.

A repair takes the sources of a folder and what the error names; it returns the files that it
changes. What has no repair here is not guessed: the error is then the reason that is given.
"""

import ast
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Sources = dict[str, str]
Edit = Callable[..., Sources]  # of the sources and each group of the error

# Names that transformers has moved or removed: what stands for each where it was imported.
GONE = {
    "find_pruneable_heads_and_indices": "def find_pruneable_heads_and_indices(*arguments):\n"
    "    raise NotImplementedError('heads cannot be pruned')",
    "is_torch_fx_available": "def is_torch_fx_available():\n    return False",
    "prune_linear_layer": "from transformers.pytorch_utils import prune_linear_layer",
    "apply_chunking_to_forward": "from transformers.pytorch_utils import apply_chunking_to_forward",
    "no_init_weights": "from transformers.initialization import no_init_weights",
}
# Fields that every configuration had in transformers 4.
DEFAULTS: dict[str, object] = {
    "add_cross_attention": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "is_decoder": False,
    "max_length": 20,
    "pad_token_id": None,
    "pruned_heads": {},
    "rope_scaling": None,
    "sep_token_id": None,
    "tie_word_embeddings": True,
    "torchscript": False,
    "use_cache": True,
}


@dataclass(frozen=True)
class Repair:
    """A repair of what an error says; each group of `error` is handed to `edit` in turn."""

    error: re.Pattern[str]
    edit: Edit
    why: str  # {} stands for what the error names


@dataclass(frozen=True)
class Repaired:
    """The sources after one repair, and a sentence on it."""

    sources: Sources
    sentence: str


def beside(sources: Sources, packages: str) -> Sources:
    """Import modules that lie in the folder from there."""
    names = [name for name in packages.split(", ") if f"{name}.py" in sources]
    if not names:
        return {}
    pattern = re.compile(rf"^(\s*from )({'|'.join(map(re.escape, names))})( import )", re.M)
    return changed(sources, lambda source: pattern.sub(r"\1.\2\3", source))


def guarded(sources: Sources, packages: str) -> Sources:
    """Let imports of packages that are missing fail only where something of them is used."""
    names = set(packages.split(", "))

    def edit(source: str) -> str:
        found = [node for node in imports(source) if roots(node) & names]
        return replaced(source, {node: with_try(source, node) for node in found})

    return changed(sources, edit)


def with_try(source: str, node: ast.stmt) -> str:
    indent = " " * node.col_offset
    statement = textwrap_indent(segment(source, node), "    ")
    return f"try:\n{indent}    {statement.strip()}\n{indent}except ImportError:\n{indent}    pass"


def textwrap_indent(text: str, by: str) -> str:
    return text.replace("\n", f"\n{by}")


def stand_in(sources: Sources, name: str) -> Sources:
    """Put what stands for a removed name of transformers after the import of it."""
    if name not in GONE:
        return {}

    def edit(source: str) -> str:
        edits = {}
        for node in imports(source):
            kept = [alias for alias in node.names if alias.name != name]
            if isinstance(node, ast.ImportFrom) and len(kept) < len(node.names):
                rest = [ast.unparse(ast.ImportFrom(node.module, kept, node.level))] if kept else []
                edits[node] = textwrap_indent("\n".join([*rest, GONE[name]]), " " * node.col_offset)
        return replaced(source, edits)

    return changed(sources, edit)


def default_field(sources: Sources, config: str, name: str) -> Sources:
    """Give a configuration the default that all had in transformers 4."""
    if name not in DEFAULTS:
        return {}
    return in_class(sources, config, f"{name} = {DEFAULTS[name]!r}")


def tied_keys(sources: Sources) -> Sources:
    """Say of the tied head what it is tied to."""
    pattern = re.compile(r"(_tied_weights_keys) = \[(\"[\w.]*(?:lm_head|output_layer)\.weight\")\]")

    def edit(source: str) -> str:
        table = re.search(r"self\.(\w+) = nn\.Embedding\(", source)
        body = re.search(r"base_model_prefix = \"(\w+)\"", source)
        if table is None:
            return source
        to = f"{body[1]}.{table[1]}.weight" if body else f"{table[1]}.weight"
        return pattern.sub(rf'\1 = {{\2: "{to}"}}', source)

    return changed(sources, edit)


def old_cache(sources: Sources) -> Sources:
    """Let generate begin without a cache object, and the code count the positions of its tuples."""
    method = "_supports_default_dynamic_cache = classmethod(lambda cls: False)"
    if any(method in source for source in sources.values()):
        return {}
    edits = in_class(sources, r"\w*PreTrainedModel", method)
    positions = re.compile(r"= kwargs\.get\(\"position_ids\", None\)")
    return {name: positions.sub("= None", source) for name, source in edits.items()}


def literal_field(sources: Sources, config: str, name: str) -> Sources:
    """Put the default of transformers 4 where code reads a setting of generation."""
    if name != "max_length":  # a configuration that holds it is refused
        return {}
    read = re.compile(r"\bconfig\.max_length\b")
    return changed(sources, lambda source: read.sub(repr(DEFAULTS[name]), source))


def generating(sources: Sources, name: str) -> Sources:
    """Inherit `generate`, which models no longer have of themselves."""
    header = re.compile(rf"^class {name}\(([^)]*)\):", re.M)
    generation = "from transformers import GenerationMixin\n\n\n"

    def edit(source: str) -> str:
        if (found := header.search(source)) is None or "GenerationMixin" in found[1]:
            return source
        new = f"{generation}class {name}({found[1]}, GenerationMixin):"
        return source[: found.start()] + new + source[found.end() :]

    return changed(sources, edit)


def finished(sources: Sources, name: str) -> Sources:
    """Let a model end its making as all do: from there on it knows which weights are tied."""

    def edit(source: str) -> str:
        classes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef)]
        functions = [n for one in classes if one.name == name for n in one.body]
        edits = {}
        for function in functions:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                last, indent = function.body[-1], " " * function.body[0].col_offset
                if segment(source, last) == "self.post_init()":
                    continue
                edits[last] = f"{segment(source, last)}\n{indent}self.post_init()"
        return replaced(source, edits)

    return changed(sources, edit)


IN_MEMORY = """\
    @classmethod
    def get_init_context(cls, *arguments, **more):
        contexts = super().get_init_context(*arguments, **more)
        return [context for context in contexts if not isinstance(context, torch.device)]

    def _move_missing_keys_from_meta_to_device(self, *arguments, **more):
        computed = {name: buffer.clone() for name, buffer in self.named_buffers()}
        super()._move_missing_keys_from_meta_to_device(*arguments, **more)
        for name, buffer in computed.items():
            self.get_buffer(name).copy_(buffer)
"""


def built_in_memory(sources: Sources) -> Repaired | None:
    """Let from_pretrained make the model in memory: without, what is computed there is lost."""
    if any(IN_MEMORY in source for source in sources.values()):
        return None
    edits = in_class(sources, r"\w*PreTrainedModel", IN_MEMORY.strip())
    sentence = "from_pretrained makes the model in memory, and keeps the buffers computed there"
    return Repaired({**sources, **edits}, sentence) if edits else None


REPAIRS = (
    Repair(
        re.compile(r"'(\w+)' object has no attribute 'all_tied_weights_keys'"),
        finished,
        "{} calls post_init, as every model does",
    ),
    Repair(
        re.compile(r"packages that were not found in your environment: ([\w., ]+?)\. Run"),
        beside,
        "modules of the folder are imported from there",
    ),
    Repair(
        re.compile(r"packages that were not found in your environment: ([\w., ]+?)\. Run"),
        guarded,
        "{} is not installed: its import may fail",
    ),
    Repair(
        re.compile(r"cannot import name '(\w+)' from 'transformers"),
        stand_in,
        "transformers no longer has {} there",
    ),
    Repair(
        re.compile(r"'(\w+Config)' object has no attribute '(\w+)'"),
        literal_field,
        "{} has the default of transformers 4",
    ),
    Repair(
        re.compile(r"'(\w+Config)' object has no attribute '(\w+)'"),
        default_field,
        "{} has the default of transformers 4",
    ),
    Repair(
        re.compile(r"'list' object has no attribute '(?:keys|items)'()"),
        lambda sources, _: tied_keys(sources),
        "the names of tied weights say what they are tied to",
    ),
    Repair(
        re.compile(r"'DynamicCache' object is not (?:subscriptable|iterable)()"),
        lambda sources, _: old_cache(sources),
        "generate begins without a cache object, as the code expects",
    ),
    Repair(
        re.compile(r"'(\w+)' object has no attribute 'generate'"),
        generating,
        "{} inherits generate",
    ),
)


def repair(sources: Sources, error: str) -> Repaired | None:
    """Return the sources with the first repair that answers this error and changes something."""
    for one in REPAIRS:
        if (found := one.error.search(error)) is None:
            continue
        edits = one.edit(sources, *found.groups())
        if edits:
            sentence = one.why.format(".".join(group for group in found.groups() if group))
            return Repaired({**sources, **edits}, sentence)
    return None


def diff(before: Sources, after: Sources) -> str:
    """Return what differs, as `diff -u` shows it."""
    lines: list[str] = []
    for name in sorted(after):
        old, new = before.get(name, "").splitlines(), after[name].splitlines()
        lines += difflib.unified_diff(old, new, name, name, lineterm="")
    return "\n".join(lines)


def changed(sources: Sources, edit: Callable[[str], str]) -> Sources:
    """Return the files that an edit changes."""
    new = {name: edit(source) for name, source in sources.items()}
    return {name: source for name, source in new.items() if source != sources[name]}


def in_class(sources: Sources, name: str, line: str) -> Sources:
    """Put a line first into each class whose name matches a pattern."""
    header = re.compile(rf"^class {name}\([^)]*\):\n(?!    {re.escape(line)}\n)", re.M)
    return changed(sources, lambda source: header.sub(lambda hit: f"{hit[0]}    {line}\n", source))


def imports(source: str) -> list[Any]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    tried = {id(n) for node in ast.walk(tree) if isinstance(node, ast.Try) for n in node.body}
    kinds = (ast.Import, ast.ImportFrom)
    return [n for n in ast.walk(tree) if isinstance(n, kinds) and id(n) not in tried]


def roots(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]} if not node.level else set()
    return {alias.name.partition(".")[0] for alias in node.names}


def segment(source: str, node: ast.stmt) -> str:
    return ast.get_source_segment(source, node) or ""


def replaced(source: str, edits: dict[Any, str]) -> str:
    """Return the source with other text in place of these statements."""
    lines = source.splitlines(keepends=True)
    for node in sorted(edits, key=lambda node: -node.lineno):
        first, last = node.lineno - 1, node.end_lineno
        start, end = lines[first][: node.col_offset], lines[last - 1][node.end_col_offset :]
        lines[first:last] = [start + edits[node] + end]
    return "".join(lines)
