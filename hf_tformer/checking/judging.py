"""The base of all judges of code: they know its scopes, its meanings and the folder's own names."""

import ast
import re
from collections.abc import Iterator

from .meanings import Meanings
from .names import (
    HARMLESS,
    LIBRARY_OF_MODEL,
    NOT_UNDERSTOOD,
    attribute_kind,
    is_dangerous,
    is_dunder,
    is_leading,
    is_module,
    kind_of,
)
from .scopes import Function, Scope, Scopes

Place = ast.expr | ast.stmt | ast.pattern  # a node that has a line
Found = Iterator[tuple[str, int, str]]  # kind, line, what
SMALL = 200  # nodes of an expression that is shown: nested texts take long to be written out
ITSELF = {"self", "cls", "ctx", "mcs"}  # names of an object whose class is in this folder
TRUST = "trust_remote_code"
# argument → the kind of a call with it, and the value that is dangerous
FLAGS = {
    TRUST: ("foreign code", True),
    "custom_generate": ("foreign code", True),
    "allow_pickle": ("pickle", True),
    "weights_only": ("pickle", False),
    "eval_str": ("eval", True),
    "push_to_hub": ("network", True),
}
DTYPE = re.compile(
    r"(torch\.)?(auto|(b?float|u?int|complex|q?u?int|float8_|float4_)[\w.]*|half|double|long|short|bool"
    r"|char|byte|c(float|double|half)|bit\w*)"
)
ABOVE = {"__bases__", "__base__", "__mro__", "__kwdefaults__", "__defaults__", "__func__"}
NAMES_FIRST = {"register_buffer", "register_parameter", "add_module", "register_module"}


class Own:
    """The names that the code of a folder defines itself."""

    def __init__(self, files: dict[str, Scopes]) -> None:
        nodes = [node for scopes in files.values() for node in scopes.scope]
        self.functions = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
        self.classes = {n.name for n in nodes if isinstance(n, ast.ClassDef)}
        self.fields = set()
        for node, scope in [pair for scopes in files.values() for pair in scopes.scope.items()]:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                name = root_name(node.value)
                if name in ITSELF | self.classes or is_parameter(name, scope):
                    self.fields.add(node.attr)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in NAMES_FIRST:
                self.fields |= {str(getattr(name, "value", "")) for name in node.args[:1]}
        for scopes in files.values():
            inside = (s for s in scopes.scope.values() if s.kind == "class")
            self.fields |= {name for scope in inside for name in scope.bindings}
        self.names = self.functions | self.fields
        self.writers: set[str] = set()  # functions that save, and write files
        self.changers: dict[str, set[str]] = {}  # functions that set attributes of a parameter
        # Functions that take the name of an attribute: function → parameter → modules of that name.
        self.takers: dict[str, dict[str, set[str]]] = {}
        self.positions: dict[tuple[str, str], set[int]] = {}
        named = {node: name for scopes in files.values() for node, name in scopes.lambdas.items()}
        for node, scope in [pair for scopes in files.values() for pair in scopes.scope.items()]:
            if isinstance(node, Function):
                name = getattr(node, "name", named.get(node, ""))
                is_method = bool(node.args.args) and node.args.args[0].arg in ITSELF
                parameters = (*node.args.posonlyargs, *node.args.args)
                for i, arg in enumerate(parameters, start=-1 if is_method else 0):
                    for called in (name, scope.name) if name == "__init__" else (name,):
                        self.positions.setdefault((called, arg.arg), set()).add(i)


class Judging:
    """The base of the judges; their methods yield (kind, line, what) of each reference."""

    def __init__(self, scopes: Scopes, meanings: Meanings, own: Own) -> None:
        self.scopes, self.meanings, self.own = scopes, meanings, own
        self.texts = meanings.texts
        self.called = {node.func: node for node in scopes.scope if isinstance(node, ast.Call)}
        self.stored: dict[str, list[ast.expr]] = {}  # name of a dict → the keys that are set in it
        self.unread: dict[str | ast.expr, bool] = {}  # whether such a key of a dict cannot be read
        for node in scopes.scope:
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                self.stored.setdefault(getattr(node.value, "id", ""), []).append(node.slice)
        # A name in a class body is an attribute elsewhere; what a walrus binds is a value, too.
        self.followed = {
            value
            for name, value in scopes.assigned.items()
            if scopes.scope[name].kind != "class"
            and not isinstance(scopes.parent[name], ast.NamedExpr)
        }

    def of_kind(self, kind: str, node: Place, scope: Scope, what: str) -> Found:
        if kind in ("file writes", "file deletions"):
            saving = scope.saving() if kind == "file writes" else ""
            if saving:
                self.own.writers.add(saving)
            kind = "saved files" if saving else "file writes"
        if kind != HARMLESS:
            yield kind, node.lineno, what

    def attribute(
        self, name: str, node: Place, scope: Scope, owner: ast.expr | None = None
    ) -> Found:
        """Judge an attribute of an object that nothing is known about."""
        if is_leading(name):
            is_own = name in self.own.names and (
                getattr(owner, "id", "") in ITSELF or not self.is_of_library(owner, scope)
            )
            if not is_own and not is_dangerous(attribute_kind(name)):
                yield NOT_UNDERSTOOD, node.lineno, name
        yield from self.of_kind(attribute_kind(name), node, scope, name)

    def flagged(
        self, name: str | None, value: ast.expr | None, scope: Scope, is_argument: bool = False
    ) -> Found:
        """Judge the value that is given under a name: an argument, a key or an attribute."""
        if value is None or not name:
            return
        if "attn_implementation" in name:  # transformers may download it
            text = self.texts.text(value, scope) or ""
            if "/" in text or ":" in text:
                yield "foreign code", value.lineno, f"attn_implementation {text[:60]!r}"
        if name in ("dtype", "torch_dtype"):  # whose text transformers takes from torch by name
            others = [t for t in self.texts.possible(value, scope) if not DTYPE.fullmatch(t)]
            if others or self.texts.is_made_up(value, scope):
                yield NOT_UNDERSTOOD, value.lineno, f"{name} {(others or [shown(value)])[0][:60]!r}"
        kind, dangerous = FLAGS.get(TRUST if TRUST in name else name, ("", False))
        truth = bool(value.value) if isinstance(value, ast.Constant) else None
        what = f"{name}={shown(value)}"
        if kind and truth is dangerous:
            yield kind, value.lineno, what
        elif kind and truth is None and is_argument:
            yield "computed names", value.lineno, what

    def changed(self, dotted: str, node: Place) -> Found:
        if not dotted.startswith("."):
            kind = "global flags" if kind_of(dotted) == "global flags" else "tampering"
            yield kind, node.lineno, f"{dotted} = ..."

    def changed_object(self, owner: ast.expr, scope: Scope) -> Found:
        """Judge an object whose attributes are set: it may be a library's class."""
        inner = owner
        while isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        for around in scope.chain() if isinstance(owner, ast.Name) else ():
            if around.kind == "function" and is_parameter(owner.id, around):  # type: ignore[attr-defined]
                self.changed_by(around.name, owner)
        is_type = isinstance(inner, ast.Call) and "builtins.type" in self.meanings.of(
            inner.func, scope
        )
        first = inner.args[0] if isinstance(inner, ast.Call) and inner.args else inner
        is_class = isinstance(owner, ast.Attribute) and owner.attr == "__class__"
        is_itself = getattr(first, "id", "") in ITSELF
        is_above = any(getattr(n, "attr", "") in ABOVE for n in ast.walk(owner))
        if is_above or is_super(inner) or ((is_type or is_class) and not is_itself):
            yield NOT_UNDERSTOOD, owner.lineno, f"an attribute of {shown(owner)} is set"

    def changed_by(self, function: str, parameter: ast.expr) -> None:
        if function and not is_dunder(function):
            self.own.changers.setdefault(function, set()).add(getattr(parameter, "id", ""))

    def meaning(self, dotted: str, node: ast.expr, scope: Scope) -> Found:
        raise NotImplementedError

    def may_stand(self, node: ast.expr, scope: Scope) -> bool:
        raise NotImplementedError

    def is_of_library(self, node: ast.expr | None, scope: Scope) -> bool:
        """Return whether an object comes from a call of the standard library, such as tqdm()."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        for one, around in self.texts.reach(node, scope) if node else ():
            while isinstance(one, ast.Attribute | ast.Subscript):
                one = one.value
            if isinstance(one, ast.Call):
                found = {name for name in self.meanings.of(one.func, around) if name[0] != "."}
                if any(name.split(".")[0] not in LIBRARY_OF_MODEL for name in found):
                    return True
        return False

    def is_module(self, dotted: str) -> bool:
        return dotted[1:] in self.meanings.files if dotted[0] == "." else is_module(dotted)

    def makers(self, node: ast.expr, scope: Scope) -> set[str]:
        """Return the dotted names of the functions that may have made an object."""
        reached = self.texts.reach(node, scope)
        calls = ((one.func, around) for one, around in reached if isinstance(one, ast.Call))
        return {name for func, around in calls for name in self.meanings.of(func, around)}

    def libraries(self, node: ast.expr, scope: Scope) -> list[str]:
        """Return the names of libraries that an expression may mean, without the builtins."""
        found = self.meanings.of(node, scope)
        return sorted(name for name in found if not name.startswith((".", "builtins.")))

    def is_certain(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether nothing in this folder gives a name a meaning that cannot be followed."""
        for one, around in self.texts.reach(node, scope):
            name = one.id if isinstance(one, ast.Name) else ""
            values = [value for _, value in around.find(name)]
            stars = [star[1:] for s in around.chain() for star in s.stars]
            others = (self.meanings.files[star] for star in stars if star in self.meanings.files)
            if None in values or any(name in other.module.bindings for other in others):
                return False
            if not all(self.is_certain_import(v) for v in values if isinstance(v, str)):
                return False
        return True

    def is_certain_import(self, dotted: str) -> bool:
        file, _, name = dotted[1:].partition(".")
        is_own = dotted.startswith(".") and file in self.meanings.files
        return not is_own or None not in self.meanings.files[file].module.of(name)


def shown(node: ast.AST, longest: int = 40) -> str:
    """Return the code of a small node, or only its first part."""
    if sum(1 for _ in zip(ast.walk(node), range(SMALL), strict=False)) == SMALL:
        return f"{type(node).__name__} ..."
    return ast.unparse(node)[:longest]


def is_super(node: ast.expr) -> bool:
    return getattr(getattr(node, "func", None), "id", "") == "super"


def root_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", "")


def is_parameter(name: str, scope: Scope) -> bool:
    """Return whether a name is bound to nothing that the code names, as a parameter is."""
    found = scope.find(name)
    return bool(found) and all(s.kind == "function" and value is None for s, value in found)
