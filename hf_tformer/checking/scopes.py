"""Find which names a file of code binds, in which of its scopes, and to what.

    def f(x):              module: f → ?, o → os
        s = o.system       f:      x → ?, s → the expression o.system
    import os as o

The order of statements is ignored: a name may be whatever it is bound to anywhere in its scope.
"""

import ast
import builtins
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Names of every module besides the builtins.
OF_MODULES = {"__builtins__", "__file__", "__loader__", "__name__", "__spec__", "__doc__"}

# A dotted name, an expression, or None for a value that is not known.
Value = str | ast.expr | None


@dataclass(eq=False)
class Scope:
    """One scope of a file, with everything that each of its names may be bound to."""

    kind: str  # "module", "class", "function" or "comprehension"
    parent: "Scope | None" = None
    name: str = ""
    bindings: dict[str, list[Value]] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)  # name → "global" or "nonlocal"
    stars: list[str] = field(default_factory=list)

    def bind(self, name: str, value: Value = None) -> None:
        values = self.bindings.setdefault(name, [])
        if value is not None or None not in values[:1]:
            values.insert(0, value) if value is None else values.append(value)

    def chain(self) -> "list[Scope]":
        return [self, *self.parent.chain()] if self.parent else [self]

    def saving(self) -> str:
        """Return the name of the function that saves whose code this is, or ""."""
        names = (scope.name for scope in self.chain() if scope.kind == "function")
        return next((name for name in names if is_saving(name)), "")

    def find(self, name: str) -> "list[tuple[Scope, Value]]":
        """Return (scope, value) of everything that a name may be bound to; [] if it is free."""
        found: list[tuple[Scope, Value]] = []
        for scope in self.chain():
            if scope.elsewhere.get(name) == "global":
                return [*found, *((s, v) for s in self.chain()[-1:] for v in s.of(name))]
            found += [(scope, value) for value in scope.of(name)]
            is_own = scope.elsewhere.get(name) != "nonlocal"
            if found and is_own and scope.kind in ("function", "comprehension"):
                return found
        return found

    def of(self, name: str) -> list[Value]:
        return self.bindings.get(name, [])


def called_as(function: Scope) -> list[str]:
    """Return the names under which code calls a function: a class stands for its `__init__`."""
    if function.name == "__init__" and function.parent and function.parent.kind == "class":
        return [function.parent.name, "__init__"]
    is_special = function.name.startswith("__") and function.name.endswith("__")
    return [] if is_special else [function.name]


class Scopes:
    """The scope and the parent of each node of a tree."""

    def __init__(self, tree: ast.Module, folder: str = "") -> None:
        self.folder = folder  # of the file, "" or "name/"
        self.module = Scope("module")
        self.scope: dict[ast.AST, Scope] = {}
        self.parent: dict[ast.AST, ast.AST] = {}
        self.assigned: dict[ast.AST, ast.expr] = {}  # target → value
        self.looped: dict[ast.AST, list[ast.expr]] = {}  # target → the elements of a written list
        self.outside: dict[ast.AST, Scope] = {}
        self.lambdas: dict[ast.AST, str] = {}  # value → the name that it is assigned to
        unfold_annotations(tree)
        for node in tree.body:
            self.visit(node, self.module, tree)
        self.bind_elsewhere()

    def visit(self, node: ast.AST, scope: Scope, parent: ast.AST) -> None:
        scope = self.outside.get(node, scope)
        self.scope[node], self.parent[node] = scope, parent
        if isinstance(node, Function):
            return self.visit_function(node, scope)
        if isinstance(node, ast.ClassDef):
            scope.bind(node.name)
            inside = Scope("class", scope, node.name)
            return self.visit_fields(node, {"body": inside}, scope)
        if isinstance(node, COMPREHENSIONS):
            inside = Scope("comprehension", scope)
            self.outside[node.generators[0].iter] = scope  # which Python evaluates before the loop
            return self.visit_fields(node, {}, inside)
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            kind = "global" if isinstance(node, ast.Global) else "nonlocal"
            scope.elsewhere.update(dict.fromkeys(node.names, kind))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                self.bind(scope, alias.asname or top, alias.name if alias.asname else top)
        elif isinstance(node, ast.ImportFrom):
            self.visit_import_from(node, scope)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            for value in self.looped.get(node, [self.assigned.get(node)]):
                self.bind(scope, node.id, value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self.assign(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self.assign(node.target, node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            elements = getattr(node.iter, "elts", [])
            if elements and not any(isinstance(element, ast.Starred) for element in elements):
                self.looped[node.target] = elements
        for name in bound_by_name(node):
            self.bind(scope, name)
        inner = {}
        if isinstance(node, ast.NamedExpr):  # binds outside of comprehensions
            inner["target"] = next(s for s in scope.chain() if s.kind != "comprehension")
        self.visit_fields(node, inner, scope)

    def visit_function(self, node: Function, scope: Scope) -> None:
        name = getattr(node, "name", "")
        if name:
            self.bind(scope, name)
        inside = Scope("function", scope, name or self.lambdas.get(node, ""))
        arguments = node.args
        extra = [arg for arg in (arguments.vararg, arguments.kwarg) if arg]
        for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra):
            inside.bind(arg.arg)
        self.visit_fields(node, {"body": inside}, scope)

    def visit_fields(self, node: ast.AST, inner: dict[str, Scope], scope: Scope) -> None:
        for name, content in ast.iter_fields(node):
            for child in content if isinstance(content, list) else [content]:
                if isinstance(child, ast.AST):
                    self.visit(child, inner.get(name, scope), node)

    def visit_import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if alias.name == "*":
                scope.stars.append(self.origin(node))
            else:
                self.bind(scope, alias.asname or alias.name, self.origin(node, alias.name))

    def origin(self, node: ast.ImportFrom, name: str = "") -> str:
        """Return the dotted name of an import: `torch.nn`, or `.file.Class` from a sibling."""
        if not node.level:
            return f"{node.module}.{name}" if name else node.module or ""
        folders = self.folder.split("/")[: -node.level]
        file = "/".join([*folders, *(node.module or "").split(".")]).strip("/")
        if not node.module:  # from . import file
            return f".{'/'.join([*folders, name])}"
        return f".{file}.{name}" if name else f".{file}"

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        pairs = (ast.Tuple, ast.List)
        if isinstance(target, pairs) and isinstance(value, pairs):
            if len(target.elts) == len(value.elts) and not has_star(target) and not has_star(value):
                for one, other in zip(target.elts, value.elts, strict=True):
                    self.assign(one, other)
        elif isinstance(target, ast.Name):
            self.assigned[target] = value
            self.lambdas[value] = target.id

    def bind(self, scope: Scope, name: str, value: Value = None) -> None:
        scope = self.module if scope.elsewhere.get(name) == "global" else scope
        scope.bind(name, value)

    def bind_elsewhere(self) -> None:
        """Bind nonlocal names in the scopes around, too."""
        for scope in {id(s): s for s in self.scope.values()}.values():
            for name, kind in scope.elsewhere.items():
                for around in scope.chain()[1:] if kind == "nonlocal" else ():
                    if around.kind == "function" and name in around.bindings:
                        around.bindings[name] += scope.of(name)


def unfold_annotations(tree: ast.AST) -> None:
    """Parse strings in annotations as code: dataclasses and configurations evaluate them."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if getattr(node, name, None):
                setattr(node, name, unfolded(getattr(node, name)))


def unfolded(node: ast.AST) -> ast.AST:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            code = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            return node
        for inner in (n for n in ast.walk(code) if isinstance(n, ast.expr)):
            inner.lineno = node.lineno
        return unfolded(code)
    if isinstance(node, ast.JoinedStr | ast.Call) or (
        isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitOr)
    ):
        return node  # a string of several parts
    if isinstance(node, ast.Subscript) and last_name(node.value) == "Literal":
        texts = (getattr(inner, "value", "") for inner in ast.walk(node.slice))
        if not any("(" in text for text in texts if isinstance(text, str)):
            return node  # its strings are no code
    for name, content in ast.iter_fields(node):
        if isinstance(content, list):
            content[:] = [unfolded(c) if isinstance(c, ast.AST) else c for c in content]
        elif isinstance(content, ast.AST):
            setattr(node, name, unfolded(content))
    return node


def last_name(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def bound_by_name(node: ast.AST) -> list[str]:
    """Return the names that a node binds without a node of their own."""
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return [node.name] if node.name else []
    if isinstance(node, ast.MatchMapping):
        return [node.rest] if node.rest else []
    return []


def has_star(node: ast.Tuple | ast.List) -> bool:
    return any(isinstance(element, ast.Starred) for element in node.elts)


def is_saving(name: str) -> bool:
    return name.lstrip("_").startswith("save") and name != "save_for_backward"


def is_builtin(name: str) -> bool:
    return hasattr(builtins, name) or name in OF_MODULES
