"""What the code of a model folder would do, read and not run.

    auto_map → entry files → the files they import → one tree each → findings with file:line

Reading is no proof: code that wants to hide what it does can. It finds what honest code does
without thinking of its readers, and what a dishonest one does in plain sight.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# transformers requires these itself, so they are there, but code that needs them can do more.
COME_ALONG = {
    *("filelock", "huggingface_hub", "numpy", "packaging", "regex", "safetensors", "tokenizers"),
    *("tqdm", "typing_extensions", "yaml"),
}
WELCOME = {"torch", "transformers"}

# What each kind of thing is called where it is imported or called; a prefix stands for all below.
NETWORK = (
    *("aiohttp", "ftplib", "http", "httpx", "paramiko", "requests", "smtplib", "socket", "ssl"),
    *("telnetlib", "torch.hub", "urllib.request", "urllib3", "websockets", "xmlrpc"),
    *("huggingface_hub.HfApi", "huggingface_hub.hf_hub_download"),
    *("huggingface_hub.snapshot_download", "transformers.utils.hub.cached_file"),
    "transformers.utils.cached_file",
)
PROCESSES = (
    *("ctypes", "os.exec*", "os.fork", "os.popen", "os.posix_spawn", "os.spawn*", "os.startfile"),
    *("os.system", "pexpect", "pty", "subprocess", "torch.ops.load_library"),
    "torch.utils.cpp_extension",
)
TEXT_AS_CODE = ("compile", "eval", "exec", "runpy")
UNPICKLING = ("cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "torch.load")
HIDDEN_IMPORTS = ("__import__", "importlib.import_module", "importlib.util.spec_from_file_location")
ENVIRONMENT = (
    *("os.environ.clear", "os.environ.pop", "os.environ.setdefault", "os.environ.update"),
    *("os.putenv", "os.unsetenv"),
)
FILE_WRITES = (
    *("numpy.save*", "os.makedirs", "os.mkdir", "os.remove", "os.rename", "os.replace", "os.rmdir"),
    *("os.unlink", "safetensors.torch.save*", "shutil.*", "torch.save"),
)
WRITING_METHODS = {"mkdir", "rmdir", "touch", "unlink", "write_bytes", "write_text"}
GLOBAL_FLAGS = (
    *("numpy.random.seed", "random.seed", "torch.manual_seed", "torch.set_default_*"),
    *("torch.set_float32_matmul_precision", "torch.set_num_*"),
    "torch.use_deterministic_algorithms",
    *("torch.backends.*.enable_*", "torch.backends.*.set_*", "torch.set_flush_denormal"),
)
BUILTINS = {"__import__", "compile", "eval", "exec"}

# kind → (verdict, what is done to whom, the remedy)
KINDS = {
    "network": ("fail", "reaches for the network", "ship what it needs as files of the repository"),
    "subprocess": ("fail", "runs or loads native code", "compute it with torch"),
    "eval": ("fail", "runs text as code", "write the code out"),
    "pickle": ("fail", "unpickles, which can run anything", "read safetensors or JSON"),
    "foreign code": ("fail", "runs another repository's code", "copy what it needs into this one"),
    "hidden import": ("warn", "imports what a reader cannot see", "use an import statement"),
    "environment": ("warn", "writes os.environ", "pass an argument: other code reads it too"),
    "global flags": ("warn", "changes torch or a random state for all", "leave that to the user"),
    "file writes": ("warn", "writes files", "keep that out of the code that loads a model"),
}
CALLS = {
    "network": NETWORK,
    "subprocess": PROCESSES,
    "eval": TEXT_AS_CODE,
    "pickle": UNPICKLING,
    "hidden import": HIDDEN_IMPORTS,
    "environment": ENVIRONMENT,
    "global flags": GLOBAL_FLAGS,
    "file writes": FILE_WRITES,
}


@dataclass
class Source:
    """One file of code: its text and its tree."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def aliases(self) -> dict[str, str]:
        """name in this file → dotted name of what was imported under it"""
        names = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    def dotted(self, node: ast.expr) -> str:
        """The full name of what an expression refers to, "" where it is no plain name."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    def root(self, node: ast.AST) -> str | None:
        while isinstance(node, ast.Attribute):
            node = node.value
        return getattr(node, "id", None)

    def relative_imports(self) -> list[tuple[int, str]]:
        """(line, module as written after `from`) of each, as Python sees them and as transformers'
        line scanner does, which also reads docstrings."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                found.add((node.lineno, "." * node.level + (node.module or "")))
        for line in re.finditer(r"^[^\S\n]*from\s+(\.\S+)\s+import", self.text, re.MULTILINE):
            found.add((self.text.count("\n", 0, line.start()) + 1, line[1]))
        return sorted(found)

    def absolute_imports(
        self, node: ast.AST | None = None, guarded: bool = False
    ) -> Iterator[tuple[int, str, bool]]:
        """(line, top module, guarded) of each; transformers demands those that are not guarded by
        `try:` or by one of its own is_..._available()."""
        node = node or self.tree
        if isinstance(node, ast.Try) or (isinstance(node, ast.If) and asks_available(node.test)):
            guarded = True
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module]
        for module in modules:
            yield node.lineno, module.split(".")[0], guarded
        for child in ast.iter_child_nodes(node):
            yield from self.absolute_imports(child, guarded)

    def unsafe(self) -> Iterator[tuple[str, int, str]]:
        """(kind, line, what) of everything that a reader should know of before running it."""
        for node in ast.walk(self.tree):
            for name in self.imported(node):
                yield from self.kinds_of(name, node, ("network", "subprocess", "eval", "pickle"))
            if isinstance(node, ast.Call):
                yield from self.unsafe_call(node)
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
                yield from self.unsafe_assignment(node)

    def imported(self, node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and not node.level:
            return [f"{node.module}.{alias.name}" for alias in node.names]
        return []

    def unsafe_call(self, node: ast.Call) -> Iterator[tuple[str, int, str]]:
        name = self.dotted(node.func)
        if name in BUILTINS or self.root(node.func) in self.aliases:
            yield from self.kinds_of(name, node, CALLS)
        if any(k.arg == "trust_remote_code" and is_true(k.value) for k in node.keywords):
            yield "foreign code", node.lineno, "trust_remote_code=True"
        method = node.func.attr if isinstance(node.func, ast.Attribute) else name
        if method in WRITING_METHODS or (method == "open" and opens_to_write(node)):
            yield "file writes", node.lineno, f"{method}()"

    def unsafe_assignment(
        self, node: ast.Assign | ast.AugAssign | ast.Delete
    ) -> Iterator[tuple[str, int, str]]:
        for target in node.targets if hasattr(node, "targets") else [node.target]:
            if isinstance(target, ast.Subscript) and self.dotted(target.value) == "os.environ":
                yield "environment", node.lineno, "os.environ"
            if isinstance(target, ast.Attribute) and self.root(target) in self.aliases:
                name = self.dotted(target)
                if is_of(name, WELCOME):
                    yield "global flags", node.lineno, name

    def kinds_of(
        self, name: str, node: ast.AST, kinds: Iterable[str]
    ) -> Iterator[tuple[str, int, str]]:
        for kind in kinds:
            if any(covers(pattern, name) for pattern in CALLS[kind]):
                yield kind, node.lineno, name


def covers(pattern: str, name: str) -> bool:
    if "*" in pattern:
        return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]*"), name) is not None
    return name == pattern or name.startswith(f"{pattern}.")


def is_of(name: str, modules: set[str]) -> bool:
    return name.split(".")[0] in modules


def asks_available(test: ast.expr) -> bool:
    calls = (node for node in ast.walk(test) if isinstance(node, ast.Call))
    return any(getattr(call.func, "id", "").endswith("available") for call in calls)


def is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def opens_to_write(call: ast.Call) -> bool:
    mode = [k.value for k in call.keywords if k.arg == "mode"]
    mode = mode or (call.args[:1] if isinstance(call.func, ast.Attribute) else call.args[1:2])
    return any(
        isinstance(n, ast.Constant) and re.fullmatch(r"[rbt+]*[wax+][rbt+]*", str(n.value))
        for n in mode
    )


def reached(folder: Path, entries: Iterable[str]) -> list[Source]:
    """The files that loading would run: the entries, and the flat siblings that they import."""
    waiting, found = sorted(entries), {}
    while waiting:
        name = waiting.pop(0)
        if name in found or not (folder / name).is_file():
            continue
        found[name] = Source(folder / name)
        if not syntax_fault(found[name]):  # which a check of its own reports
            imports = found[name].relative_imports()
            waiting += [f"{module[1:]}.py" for _, module in imports]
    return list(found.values())


def import_fault(folder: Path, module: str) -> str | None:
    """What is wrong with a relative import, None where nothing is."""
    if module == ".":
        return "transformers does not copy what `from . import` names: use `from .module import`"
    name = module[1:]
    if name.startswith(".") or "." in name:
        return f"`{module}` is not beside it: remote code is one flat folder"
    if not (folder / f"{name}.py").is_file():
        return f"{name}.py is missing (transformers also takes such a line of a docstring for one)"
    return None


def syntax_fault(source: Source) -> str | None:
    """Where a file cannot be read as Python, and why."""
    try:
        source.tree  # noqa: B018 (parses)
    except SyntaxError as error:
        return f"{source.path.name}:{error.lineno}: {error.msg}"
    except ValueError as error:
        return f"{source.path.name}: {error}"


def is_foreign(module: str) -> bool:
    return module not in WELCOME and module not in sys.stdlib_module_names
