"""Find every reference in code that is not harmless, with its line and its kind of names.KINDS.

References are judged, not calls: code that names a dangerous function may call it elsewhere. So is
a module that is used as a value, because any of its attributes could be read elsewhere.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from . import names
from .by_name import GETATTR, SETATTR, WRITERS
from .calls import Calls
from .judging import ABOVE, Found, Own, Place
from .meanings import ROUNDS, Meanings
from .names import NOT_UNDERSTOOD, attribute_kind, is_module, kind_of
from .scopes import Function, Scope, Scopes
from .shared import STANDS_FOR
from .strings import Strings
from .texts import TooEntangledError

LOADERS = {"_load_pretrained_model"}  # it is given the files of the weights, and may take others
# Names of a module or a class that decide what it imports, and which of its files are copied.
PLACES = {"__package__", "__path__", "__file__", "__module__", "__spec__", "__loader__"}
MAKES_FIELDS = {"__annotations__", "__prepare__"}  # a dataclass puts their names into code
LOADS = {"torch.load", "torch.serialization.load"}
KNOWN_TO_SAVE = ("torch.", "numpy.", "json.", "safetensors.", "transformers.")
STREAMS = {"sys.stderr", "sys.stdout"}
TAKE_STREAMS = {"builtins.print", "logging.StreamHandler", "logging.basicConfig"}
# Functions of the standard library that read or set attributes by name; called, they are judged.
BY_NAME = {
    *("functools.update_wrapper", "functools.wraps", "operator.attrgetter"),
    *(GETATTR, *SETATTR, "operator.methodcaller"),
}
# The standard library's modules whose classes hold nothing in private attributes.
PLAIN = {"abc", "builtins", "collections", "dataclasses", "enum", "typing", "typing_extensions"}


@dataclass(frozen=True, order=True)
class Reference:
    """A place in a file that a reader should know of; `kind` is a key of names.KINDS."""

    kind: str
    file: str
    line: int
    what: str


def references(
    trees: dict[str, ast.Module], data: dict[str, list[str]] | None = None
) -> Iterator[Reference]:
    """Yield every reference in these files (name → tree) that is not harmless.

    `data`: key → the strings that it has in the JSON files which the code may read.
    """
    files = {
        name.removesuffix(".py"): Scopes(tree, folder=name[: name.rfind("/") + 1])
        for name, tree in trees.items()
    }
    meanings, own = Meanings(files, data), Own(files)
    judges = {name: Judge(scopes, meanings, own) for name, scopes in files.items()}
    found = {name: set(judge.everything()) for name, judge in judges.items()}
    for _ in range(ROUNDS):  # a function may hand a name on to another one
        before = sum(map(len, own.takers.values()))
        for judge in judges.values():
            judge.find_takers()
        if before == sum(map(len, own.takers.values())):
            break
    else:
        raise TooEntangledError("names are handed on from function to function")
    for name, judge in judges.items():
        for kind, line, what in sorted(found[name] | set(judge.of_own_functions())):
            yield Reference(kind, f"{name}.py", line, what)


class Judge(Calls, Strings):
    """Judges each node of a file."""

    def everything(self) -> Found:
        for node, scope in list(self.scopes.scope.items()):
            yield from self.judge(node, scope)
        for node in self.meanings.lost & self.scopes.scope.keys():
            yield "handed on", node.lineno, "a name with too many meanings"

    def judge(self, node: ast.AST, scope: Scope) -> Found:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from self.imported(node, scope)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            is_read = isinstance(node.ctx, ast.Load)
            yield from (self.read if is_read else self.written)(node, scope)
        elif isinstance(node, ast.Subscript):
            yield from self.subscript(node, scope)
            yield from self.alias(node, scope)
        elif isinstance(node, ast.Call):
            yield from self.call(node, scope)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                yield from self.item(key, value, scope) if key else ()
        elif isinstance(node, ast.MatchClass):
            for name in node.kwd_attrs:
                yield from self.attribute(name, node, scope)
        elif isinstance(node, Function | ast.ClassDef):
            yield from self.definition(getattr(node, "name", ""), node)
            yield from self.held_open(node, scope) if isinstance(node, Function) else ()
            if isinstance(node, ast.ClassDef):
                yield from self.inheriting(node, scope)
                yield from self.sharing(node, scope)
        if isinstance(node, ast.expr):
            yield from self.text_of(node, scope)
        for name in ("annotation", "returns"):
            yield from self.annotation(getattr(node, name, None), scope)

    def imported(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> Found:
        for alias in node.names:
            if isinstance(node, ast.Import):
                dotted = alias.name
            elif alias.name == "*":
                dotted = self.scopes.origin(node)
                is_known = not dotted.startswith(".") and names.is_listed(dotted)
                if is_known and not names.is_wholly_harmless(dotted):
                    yield "handed on", node.lineno, f"from {dotted} import *"
            else:
                dotted = self.scopes.origin(node, alias.name)
            if dotted.startswith("."):
                kind = attribute_kind(alias.name)
                meanings = self.meanings.expand(dotted)
            else:
                kind, meanings = kind_of(dotted), [dotted]
            kind = "saved files" if kind == "file writes" else kind  # its use decides
            yield from self.of_kind(kind, node, scope, dotted)
            yield from self.definition(alias.asname or alias.name, node)
            if scope.kind == "class" and any(map(self.is_module, meanings)):
                yield "handed on", node.lineno, dotted

    def read(self, node: ast.Name | ast.Attribute, scope: Scope) -> Found:
        meanings = self.meanings.of(node, scope)
        known = [name for name in meanings if name[0] != "."]
        parent = self.scopes.parent[node]
        if isinstance(node, ast.Attribute):
            if node.attr in WRITERS or not any(name.startswith(KNOWN_TO_SAVE) for name in known):
                yield from self.saving(node.attr, node, node.value, scope)
            if not known:
                yield from self.attribute(node.attr, node, scope, node.value)
                if node.attr == "open" and node not in self.called:
                    yield NOT_UNDERSTOOD, node.lineno, "open, handed on"
            else:
                yield from self.of_kind(attribute_kind(node.attr), node, scope, node.attr)
        if isinstance(parent, ast.Attribute) and self.meanings.of(parent, scope):
            return  # the longer name is judged
        for dotted in meanings:
            yield from self.meaning(dotted, node, scope)
        if any(map(self.is_module, meanings)) and not self.may_stand(node, scope):
            yield "handed on", node.lineno, min(filter(self.is_module, meanings))
        yield from self.table(node, meanings, scope)
        if isinstance(node, ast.Attribute) and node.attr == "format":
            yield from self.formatted(node, scope)
        if getattr(node, "attr", "") == "from_pretrained" and node not in self.called:
            yield "downloads", node.lineno, "from_pretrained"

    def meaning(self, dotted: str, node: ast.expr, scope: Scope) -> Found:
        if dotted.startswith(".") or dotted.endswith(".from_pretrained"):
            return
        call = self.called.get(node)
        what = dotted.removeprefix("builtins.")
        if dotted in ("builtins.open", "io.open", "pathlib.Path.open"):
            yield from self.opened(call, node, scope)
        elif dotted in ("builtins.globals", "builtins.locals", "builtins.vars"):
            yield from self.namespace(what, call, node, scope)
        elif dotted in BY_NAME and not call:
            if node not in self.followed:
                yield NOT_UNDERSTOOD, node.lineno, f"{what}, handed on"
        elif dotted in BY_NAME:
            pass  # calls.py judges it
        elif dotted in LOADS and call and loads_weights(call):
            yield "file reads", node.lineno, f"{what}(weights_only=True)"
        elif dotted in STREAMS and self.is_stream_of_print(node, scope):
            pass
        elif names.is_listed(dotted) or names.is_dangerous(kind_of(dotted)):
            yield from self.of_kind(kind_of(dotted), node, scope, what)

    def is_stream_of_print(self, node: ast.expr, scope: Scope) -> bool:
        parent = self.scopes.parent[node]
        call = self.scopes.parent[parent] if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or not self.is_certain(call.func, scope):
            return False
        return bool(self.meanings.of(call.func, scope) & TAKE_STREAMS)

    def namespace(self, what: str, call: ast.Call | None, node: ast.expr, scope: Scope) -> Found:
        """Judge globals(), locals() and vars(): their names are fine if they are written down."""
        if what == "vars" and (not call or call.args):
            yield "computed names", node.lineno, what
            return
        is_global = what == "globals" or scope.chain()[0].kind == "module"
        parent = self.scopes.parent[call] if call else None
        if isinstance(parent, ast.Compare):
            yield "computed names", node.lineno, f"{what}()"  # "name" in globals()
        elif not call or (is_global and not isinstance(parent, ast.Subscript)):
            yield "insides", node.lineno, what
        elif is_global and isinstance(parent, ast.Subscript):
            is_read = isinstance(parent.ctx, ast.Load)
            found = list(self.texts.choices(parent.slice, scope)) if is_read else []
            yield "computed names" if found else NOT_UNDERSTOOD, node.lineno, f"{what}()[...]"
            for dotted in self.meanings.of(parent, scope):
                yield from self.meaning(dotted, parent, scope)
                if self.is_module(dotted) and not self.may_stand(parent, scope):
                    yield "handed on", node.lineno, dotted
        else:
            yield "computed names", node.lineno, what
            for name in scope.bindings:
                if any(map(self.is_module, self.meanings.of_name(name, scope))):
                    yield "handed on", node.lineno, f"{what}(), which has {name}"

    def may_stand(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether a module stands where its use can be followed; else it is handed on.

        An operator, a comparison or a key calls a method of the other operand, which is handed it;
        a constant that is looked for, as in `"NAME" in os.environ`, has no such method.
        """
        parent = self.scopes.parent[node]
        if isinstance(parent, ast.Call):
            asks = self.meanings.of(parent.func, scope) & {"builtins.hasattr", GETATTR, *SETATTR}
            return bool(asks) and parent.args[:1] == [node] and self.is_certain(parent.func, scope)
        if isinstance(parent, ast.Compare):
            is_key = isinstance(parent.left, ast.Constant) and parent.comparators == [node]
            allowed = (ast.Is, ast.IsNot, *((ast.In, ast.NotIn) if is_key else ()))
            return all(isinstance(op, allowed) for op in parent.ops)
        if isinstance(parent, (ast.IfExp, ast.BoolOp, ast.NamedExpr)):
            is_test = isinstance(parent, ast.IfExp) and parent.test is node
            return is_test or self.may_stand(parent, self.scopes.scope[parent])
        if isinstance(parent, (ast.If, ast.While, ast.Assert)):
            return parent.test is node
        if isinstance(parent, ast.UnaryOp):
            return isinstance(parent.op, ast.Not)
        if isinstance(parent, ast.Attribute | ast.Subscript):
            return parent.value is node
        return isinstance(parent, ast.Expr) or node in self.followed

    def written(self, node: ast.Name | ast.Attribute, scope: Scope) -> Found:
        parent = self.scopes.parent[node]
        value = getattr(parent, "value", None) if isinstance(parent, ast.stmt) else None
        name = node.id if isinstance(node, ast.Name) else node.attr
        yield from self.flagged(name, value, scope)
        if isinstance(parent, ast.AugAssign):
            yield from self.changed_for_all(node, node, scope)
        if isinstance(node, ast.Name):
            yield from self.definition(node.id, node)
            yield from self.extended(node, scope)
            return
        yield from self.attribute(node.attr, node, scope, node.value)
        yield from self.changed_object(node.value, scope)
        yield from self.replaced(node.attr, node.value, value, scope)
        if node.attr in MAKES_FIELDS | PLACES:
            yield NOT_UNDERSTOOD, node.lineno, node.attr
        for owner in self.meanings.of(node.value, scope):
            yield from self.changed(f"{owner}.{node.attr}", node)

    def definition(self, name: str, node: Place) -> Found:
        """Judge names that Python itself looks up, such as special methods."""
        kind = attribute_kind(name)
        is_alias = name in STANDS_FOR and isinstance(node, Function)  # a property
        is_special = names.is_dunder(name) and names.is_leading(name)
        if is_alias or is_special or name in MAKES_FIELDS | LOADERS | PLACES:
            yield NOT_UNDERSTOOD, node.lineno, name
        elif name.startswith("__") and names.is_dangerous(kind):
            yield kind, node.lineno, name

    def inheriting(self, node: ast.ClassDef, scope: Scope) -> Found:
        """Judge classes that set the private attributes of a class of the standard library."""
        inside = self.scopes.scope[node.body[0]]
        private = [name for name in inside.bindings if names.is_private(name)]
        for base in node.bases if private else ():
            for name in self.libraries(base, scope):
                top = name.split(".")[0]
                if top in names.ELSEWHERE - names.LIBRARY_OF_MODEL - PLAIN and not is_module(name):
                    yield NOT_UNDERSTOOD, node.lineno, f"{private[0]} of a class of {top}"

    def subscript(self, node: ast.Subscript, scope: Scope) -> Found:
        owners = self.meanings.of(node.value, scope)
        if "os.environ" in owners:
            yield from self.variable(node.slice, node, scope)
        elif not isinstance(node.ctx, ast.Load):
            parent = self.scopes.parent[node]
            value = getattr(parent, "value", None) if isinstance(parent, ast.stmt) else None
            yield from self.item(node.slice, value, scope)
            yield from self.changed_for_all(node.value, node, scope)
            if isinstance(node.value, ast.Attribute) and node.value.attr in ABOVE:
                yield from self.changed_object(node.value, scope)
            for owner in owners:
                yield from self.item_changed(owner, node.slice, node, scope)


def loads_weights(call: ast.Call) -> bool:
    """Return whether torch.load is told to read nothing but weights."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    only = given.get("weights_only")
    return None not in given and isinstance(only, ast.Constant) and only.value is True
