"""Read the files of code of a model folder as Python reads them, without running them.

auto_map → entry files → the files that they import → one tree each
"""

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from .files import CODE_LIMIT, Files, UnreadableError

# The modules of packages that transformers or torch requires: they are there wherever it is.
PROMISED = {
    *("filelock", "huggingface_hub", "numpy", "packaging", "regex", "safetensors", "tokenizers"),
    *("tqdm", "typer", "typing_extensions", "yaml"),
}
WELCOME = {"torch", "transformers", *PROMISED}
ENCODED = "so it is not what it looks like"
DEPTH = 180  # levels of a tree; honest code has thirty
COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
# Characters that reverse text in an editor, or move the cursor of a terminal.
HIDDEN = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]|\r")


@dataclass
class Source:
    """One file of code: its bytes, its text and its syntax tree."""

    name: str  # from the folder, as "custom_generate/generate.py"
    files: Files

    @cached_property
    def content(self) -> bytes:
        return self.files.read(self.name, CODE_LIMIT)

    @cached_property
    def text(self) -> str:
        return self.content.decode("utf-8-sig")

    @cached_property
    def tree(self) -> ast.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about the code, not about this check
            return ast.parse(self.content)

    @cached_property
    def fault(self) -> str | None:
        """The reason why the file cannot be read, and where; None if it can."""
        try:
            if cookie := foreign_encoding(self.content):
                return f"{self.name}: is written in {cookie}, {ENCODED}"
            self.text  # noqa: B018 (decodes)
            self.tree  # noqa: B018 (parses)
        except UnreadableError as error:
            return f"{self.name}: {error}"
        except SyntaxError as error:
            return f"{self.name}:{error.lineno}: {error.msg}"
        except UnicodeDecodeError as error:
            return f"{self.name}: is no UTF-8 text ({error.reason})"
        except ValueError as error:
            return f"{self.name}: {error}"
        except (RecursionError, MemoryError):
            return f"{self.name}: is nested too deeply to be read"
        return f"{self.name}: is nested too deeply to be read" if is_deep(self.tree) else None

    @property
    def folder(self) -> str:
        """The folder of the file, as "" or "custom_generate/"."""
        return self.name[: self.name.rfind("/") + 1]

    def hidden_lines(self) -> list[int]:
        """Return the lines with characters that make them look like something else."""
        lines = enumerate(self.text.split("\n"), 1)
        return [number for number, line in lines if HIDDEN.search(line.removesuffix("\r"))]

    def relative_imports(self) -> list[tuple[int, str]]:
        """Return (line, module as written after `from`) of each relative import.

        These are the ones that Python finds, and those of transformers' line scanner, which also
        reads docstrings.
        """
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                found.add((node.lineno, "." * node.level + (node.module or "")))
        line, end = 1, 0
        for match in re.finditer(r"^[^\S\n]*from\s+(\.\S+)\s+import", self.text, re.MULTILINE):
            line, end = line + self.text.count("\n", end, match.start()), match.start()
            found.add((line, match[1]))
        return sorted(found)

    def absolute_imports(
        self, node: ast.AST | None = None, guarded: bool = False
    ) -> Iterator[tuple[int, str, bool]]:
        """Yield (line, top module, guarded) of each absolute import.

        transformers requires those that are not guarded by `try:` or by its is_..._available().
        """
        node = node or self.tree
        if isinstance(node, ast.Try) or (isinstance(node, ast.If) and asks_available(node.test)):
            guarded = True
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0], guarded) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.lineno, (node.module or "").split(".")[0], guarded
        for child in ast.iter_child_nodes(node):
            yield from self.absolute_imports(child, guarded)


def foreign_encoding(content: bytes) -> str | None:
    """Return the encoding that one of the first lines declares, if it is not UTF-8."""
    for line in re.split(rb"\r\n|\r|\n", content[:10_000], maxsplit=2)[:2]:
        if cookie := COOKIE.match(line.removeprefix(b"\xef\xbb\xbf")):
            name = cookie[1].decode("ascii", "replace")
            if name.lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig", "ascii"):
                return name
    return None


def is_deep(tree: ast.AST) -> bool:
    level = [tree]
    for _ in range(DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return bool(level)


def asks_available(test: ast.expr) -> bool:
    calls = (node for node in ast.walk(test) if isinstance(node, ast.Call))
    return any(getattr(call.func, "id", "").endswith("available") for call in calls)


def reached(sources: dict[str, Source], entries: Iterable[str]) -> list[Source]:
    """Return the files that loading would run: the entries and the siblings that they import."""
    waiting, found = sorted(entries), {}
    while waiting:
        name = waiting.pop(0)
        source = sources.get(name)
        if source is None or name in found:
            continue
        found[name] = source
        if not source.fault:  # check_syntax reports it
            waiting += [
                f"{folder}{module.lstrip('.').replace('.', '/')}.py"
                for _, module in source.relative_imports()
                for folder in (source.folder, "")
            ]
    return list(found.values())


def import_fault(source: Source, module: str) -> str | None:
    """Return what is wrong with a relative import, or None."""
    if module == ".":
        return "transformers does not copy what `from . import` names: use `from .module import`"
    name = module[1:]
    if name.startswith(".") or "." in name:
        last = name.rpartition(".")[2]
        remedy = f"move it beside this file, and write `from .{last}`"
        return f"`{module}` is in another folder, and remote code is one flat folder: {remedy}"
    if any(other.startswith(f"{source.folder}{name}/") for other in source.files.names):
        return f"{name}/ is a folder, and remote code is one flat folder: move its files beside it"
    if f"{source.folder}{name}.py" not in source.files.names:
        return f"{name}.py is missing (transformers also takes such a line of a docstring for one)"
    return None


def is_foreign(module: str) -> bool:
    return module not in WELCOME and module not in sys.stdlib_module_names
