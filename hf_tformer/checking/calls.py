"""Judge calls: options that run code from elsewhere, attributes by name, and changes of others."""

import ast
import re

from .by_name import GETATTR, SETATTR, ByName
from .changes import MUTATORS, Changes
from .judging import Found, Place, shown
from .loading import PLACED, Loading
from .names import NOT_UNDERSTOOD, SECRET_VARIABLES, STEERING
from .scopes import Scope

WRITING = re.compile(r"[rbtU]*[wax+][rwaxbt+U]*")
TYPED_DICTS = {"typing.TypedDict", "typing_extensions.TypedDict"}


class Calls(ByName, Changes, Loading):
    """Judges calls, and what else sets options and attributes."""

    def call(self, node: ast.Call, scope: Scope) -> Found:
        functions = self.meanings.of(node.func, scope)
        for keyword in node.keywords:
            if keyword.arg is None:
                yield from self.options(keyword.value, node, scope)
            else:
                yield from self.flagged(keyword.arg, keyword.value, scope, is_argument=True)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method == "eval" and node.args:  # as of a table; a model's eval() takes none
            yield "unknown", node.lineno, "eval with arguments"
        if functions & TYPED_DICTS or ("builtins.type" in functions and len(node.args) > 1):
            yield "computed names", node.lineno, shown(node, 60)
        yield from self.loaded(node, method, functions, scope)
        if method in PLACED and scope.saving():
            yield from self.placed(node, method, scope)
        if method == "open" and not functions & {"io.open"}:
            values = [*node.args, *(k.value for k in node.keywords if k.arg == "mode")]
            modes = list(filter(None, (self.texts.text(value, scope) for value in values)))
            is_unread = bool(values) and not modes
            is_path = isinstance(node.func, ast.Attribute) and any(
                name.startswith("pathlib.") for name in self.makers(node.func.value, scope)
            )
            if any(WRITING.fullmatch(mode) for mode in modes) or (is_path and is_unread):
                yield from self.of_kind("file writes", node, scope, "open(…) to write")
        yield from self.of_files(node, method, scope)
        if "logging.basicConfig" in functions and "filename" in {k.arg for k in node.keywords}:
            yield from self.of_kind("file writes", node, scope, "logging.basicConfig(filename=...)")
        if functions & {"os.getenv", "os.environ.get", "os.environ.pop", "os.environ.setdefault"}:
            for key in [*node.args[:1], *(k.value for k in node.keywords if k.arg == "key")]:
                yield from self.variable(key, node, scope)
        if functions & {GETATTR, *SETATTR} and len(node.args) > 1:
            yield from self.by_name(node, scope, functions)
        elif functions & {GETATTR, *SETATTR}:
            yield NOT_UNDERSTOOD, node.lineno, shown(node, 60)
        yield from self.by_library(node, functions, scope)
        yield from self.changed_class(node, functions, scope)
        yield from self.setting(node, functions, scope)
        if isinstance(node.func, ast.Attribute):
            yield from self.mutation(node, node.func, scope)
            if method in MUTATORS:
                yield from self.changed_for_all(node.func.value, node, scope)
            if method in ("setdefault", "__setitem__") and len(node.args) > 1:
                yield from self.item(node.args[0], node.args[1], scope)

    def of_files(self, node: ast.Call, method: str, scope: Scope) -> Found:
        """Judge methods of objects that may be files, or lie in one."""
        if method == "replace" and len(node.args) == 1 and not node.keywords:
            yield from self.of_kind("file deletions", node, scope, "replace, of a path")
        if method == "from_file" and len(node.args) + len(node.keywords) > 1:
            yield from self.of_kind("file writes", node, scope, "from_file, shared with a tensor")
        if method == "rename" and len(node.args) == 1 and not self.own.functions & {"rename"}:
            yield NOT_UNDERSTOOD, node.lineno, "rename, perhaps of a file"

    def item(self, key: ast.expr, value: ast.expr | None, scope: Scope) -> Found:
        """Judge an item of a dict, or one that is set in it."""
        for name in self.texts.choices(key, scope):
            yield from self.flagged(name, value, scope)
        if self.may_be_flag(key, scope):
            yield NOT_UNDERSTOOD, key.lineno, f"the key {shown(key)}"

    def variable(self, key: ast.expr, node: Place, scope: Scope) -> Found:
        name = self.texts.text(key, scope)
        if name is None or SECRET_VARIABLES.search(name):
            kind = "secrets" if name else "computed names"
            yield kind, node.lineno, f"os.environ[{name or '...'}]"
        elif isinstance(getattr(node, "ctx", None), ast.Store) and STEERING.fullmatch(name):
            yield NOT_UNDERSTOOD, node.lineno, f"os.environ[{name}] = ..."

    def opened(self, call: ast.Call | None, node: ast.expr, scope: Scope) -> Found:
        """Judge open(): reading is for a person to see, writing or an unknown mode is dangerous."""
        if call is None and node not in self.followed:
            yield from self.of_kind("file deletions", node, scope, "open, handed on")
        elif call is not None:
            modes = [k.value for k in call.keywords if k.arg in ("mode", None)] or call.args[1:2]
            mode = self.texts.text(modes[0], scope) if modes else "r"
            kind = "file reads"
            has_star = any(isinstance(argument, ast.Starred) for argument in call.args)
            if mode is None or WRITING.fullmatch(mode) or has_star:
                kind = "file writes"
            how = f"mode {mode!r}" if mode else "some mode"
            yield from self.of_kind(kind, node, scope, f"open(…) with {how}")
