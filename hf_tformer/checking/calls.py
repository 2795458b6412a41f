"""Judge calls: options that run code from elsewhere, attributes by name, and changes of others."""

import ast
import re

from .by_name import GETATTR, SETATTR, ByName
from .changes import MUTATORS, Changes
from .judging import FLAGS, TRUST, Found, Place, shown
from .names import NOT_UNDERSTOOD, SECRET_VARIABLES, STEERING
from .scopes import Scope

WRITING = re.compile(r"[rbtU]*[wax+][rwaxbt+U]*")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
TYPED_DICTS = {"typing.TypedDict", "typing_extensions.TypedDict"}
LOADING = {"from_config", "from_pretrained", "generate"}


class Calls(ByName, Changes):
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
        if method == "from_pretrained" or any(".from_pretrained" in f for f in functions):
            yield from self.from_pretrained(node, scope)
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

    def options(self, options: ast.expr, node: ast.Call, scope: Scope) -> Found:
        """Judge what is handed by `**`: a key that nobody can read may be one of FLAGS."""
        method = getattr(node.func, "attr", getattr(node.func, "id", ""))
        name = getattr(options, "id", options)
        if name not in self.unread:
            keys = filter(None, self.keys(options, scope))
            self.unread[name] = any(self.may_be_flag(key, scope, True) for key in keys)
        if self.unread[name]:
            yield NOT_UNDERSTOOD, node.lineno, f"**{shown(options)}"
        elif method in LOADING and not self.is_written_down(options, scope):
            yield "computed names", node.lineno, f"**{shown(options)}"

    def keys(self, options: ast.expr, scope: Scope) -> list[ast.expr | None]:
        """Return the keys of a dict as they are written, also where it is changed in this file."""
        if isinstance(options, ast.Dict):
            return list(options.keys)
        if not isinstance(options, ast.Name):
            return []
        bound = [(s, v) for s, v in scope.find(options.id) if isinstance(v, ast.Dict)]
        return [*self.stored.get(options.id, ()), *(key for s, v in bound for key in v.keys)]

    def may_be_flag(self, key: ast.expr, scope: Scope, is_handed: bool = False) -> bool:
        if self.texts.text(key, scope) is not None:
            return False
        shape = self.texts.shape(key, scope)
        fits = any(re.fullmatch(shape, flag) for flag in (*FLAGS, f"x_{TRUST}"))
        return (fits and bool(shape.replace(".*", ""))) or (
            is_handed and self.texts.is_made_up(key, scope)
        )

    def is_written_down(self, options: ast.expr, scope: Scope) -> bool:
        """Return whether the names of these options are the caller's, or can be read here."""
        if isinstance(options, ast.Dict):
            return all(not key or self.texts.text(key, scope) for key in options.keys)
        if isinstance(options, ast.Name):
            bound = scope.find(options.id)
            return all(not isinstance(value, (ast.Call, ast.DictComp)) for _, value in bound)
        return isinstance(options, ast.Attribute)

    def item(self, key: ast.expr, value: ast.expr | None, scope: Scope) -> Found:
        """Judge an item of a dict, or one that is set in it."""
        for name in self.texts.choices(key, scope):
            yield from self.flagged(name, value, scope)
        if self.may_be_flag(key, scope):
            yield NOT_UNDERSTOOD, key.lineno, f"the key {shown(key)}"

    def from_pretrained(self, node: ast.Call, scope: Scope) -> Found:
        named = [k.value for k in node.keywords if k.arg == "pretrained_model_name_or_path"]
        first = [self.texts.text(value, scope) for value in [*node.args[:1], *named]]
        inside = (getattr(n, "value", "") for arg in node.args for n in ast.walk(arg))
        texts = [*first, *(t for t in inside if REPOSITORY.fullmatch(str(t)))]
        if name := next(filter(None, texts), None):
            yield "foreign code", node.lineno, f"from_pretrained({name[:60]!r})"
        else:
            yield "downloads", node.lineno, "from_pretrained"

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
