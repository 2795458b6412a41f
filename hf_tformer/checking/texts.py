"""Read the strings that code puts together, and say which cannot be read.

"".join(["sys", "tem"])  → "system"      name[::-1], decode("bWV0")  → made up, out of sight
config.hidden_act        → data: "gelu", where a JSON file of the folder says so
"""

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

from .scopes import Function, Scope, Scopes

LONGEST = 10_000  # characters of a string that is put together
CHOICES = 60  # of one expression
# Methods without effects, whose result is at most as long as their object and arguments together.
METHODS = {
    *("join", "replace", "lower", "upper", "title", "capitalize", "casefold", "swapcase", "strip"),
    *("lstrip", "rstrip", "removeprefix", "removesuffix", "format", "decode", "encode", "split"),
    *("rsplit", "partition", "rpartition", "get", "hex", "fromhex"),
}
# Methods that take a part of their object: what they get from data is data.
PARTS = {
    *("split", "rsplit", "strip", "lstrip", "rstrip", "lower", "upper", "removeprefix", "get"),
    *("removesuffix", "partition", "rpartition", "pop", "replace", "keys", "values", "items"),
    *("group", "groups", "title", "capitalize", "setdefault", "value", "type"),
}
# Functions that make text of something else.
DECODERS = {"decode", "fromhex", "b64decode", "unhexlify", "translate", "chr", "bytes", "bytearray"}
FUNCTIONS: dict[str, Callable] = {
    "chr": chr,
    "str": str,
    "bytes": bytes,
    "list": list,
    "tuple": tuple,
}
WIDE = re.compile(r"\d{3}|[.\[*]")  # a template with a width that fills the memory, or a path
REACH = 2_000  # expressions that one name may be
UNREAD = object()
Read = Any


class TooEntangledError(Exception):
    """Following the names of a folder takes more steps than honest code needs."""


class Texts:
    """The strings that expressions stand for, as far as the code writes them down."""

    def __init__(self, files: dict[str, Scopes], data: dict[str, list[str]] | None = None) -> None:
        self.data = data or {}  # key → the strings that it has in the folder's JSON files
        self.defaults: dict[str, list[ast.expr]] = {}  # parameter → its defaults
        self.own = {name for scopes in files.values() for name in functions_of(scopes)}
        self.read: dict[ast.AST, Read] = {}
        # attribute → what the folder assigns to attributes of that name
        self.attributes: dict[str, list[tuple[ast.expr, Scope]]] = {}
        self.items: dict[str, list[tuple[ast.expr, Scope]]] = {}  # name of a table → what is set
        for node, scope in [pair for scopes in files.values() for pair in scopes.scope.items()]:
            for name, default in defaults_of(node):
                self.defaults.setdefault(name, []).append(default)
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                    self.items.setdefault(target.value.id, []).append((node.value, scope))  # type: ignore[attr-defined]
                is_field = isinstance(target, ast.Name) and scope.kind == "class"
                if isinstance(node, ast.Assign) and (is_field or isinstance(target, ast.Attribute)):
                    name = getattr(target, "attr", getattr(target, "id", ""))
                    self.attributes.setdefault(name, []).append((node.value, scope))
        self.reached: dict[ast.expr, list[tuple[ast.expr, Scope]]] = {}

    def text(self, node: ast.AST, scope: Scope) -> str | None:
        """Return the string that an expression of constants is, or None if it cannot be read."""
        found = self.value(node, scope)
        return found if isinstance(found, str) else None

    def value(self, node: ast.AST, scope: Scope) -> Read:
        if isinstance(node, ast.Constant):
            return node.value
        if node not in self.read:
            self.read[node] = UNREAD  # of an expression that leads to itself
            try:
                found = self.computed(node, scope)
                large = isinstance(found, str | bytes | list) and len(found) > LONGEST
                self.read[node] = UNREAD if large else found
            except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):
                pass
        return self.read[node]

    def values(self, nodes: list[ast.expr], scope: Scope) -> list[Read]:
        found = [self.value(node, scope) for node in nodes]
        if any(one is UNREAD for one in found):
            raise ValueError("one of them cannot be read")
        return found

    def computed(self, node: ast.AST, scope: Scope) -> Read:
        if isinstance(node, ast.FormattedValue):
            plain = node.format_spec is None and node.conversion in (-1, 115)
            return str(*self.values([node.value], scope)) if plain else UNREAD
        if isinstance(node, ast.JoinedStr):
            return joined("", self.values(node.values, scope))
        if isinstance(node, ast.List | ast.Tuple):
            return self.values(node.elts, scope)
        if isinstance(node, ast.BinOp):
            left, right = self.values([node.left, node.right], scope)
            if isinstance(node.op, ast.Add):
                return left + right if len(left) + len(right) <= LONGEST else UNREAD
            if isinstance(node.op, ast.Mod) and not WIDE.search(left):
                return left % (tuple(right) if isinstance(right, list) else right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.values([node.operand], scope)[0]
        if isinstance(node, ast.Subscript):
            return self.element(node, scope)
        if isinstance(node, ast.Call) and not node.keywords:
            return self.called(node, scope)
        if isinstance(node, ast.Name):
            found = scope.find(node.id)
            if len(found) == 1 and isinstance(found[0][1], ast.expr):
                value = self.value(found[0][1], found[0][0])
                return value if isinstance(value, str | bytes | int) else UNREAD  # a list may grow
        return UNREAD

    def element(self, node: ast.Subscript, scope: Scope) -> Read:
        owner = self.value(node.value, scope)
        if owner is UNREAD:
            return UNREAD
        if isinstance(node.slice, ast.Slice):
            ends = [node.slice.lower, node.slice.upper, node.slice.step]
            return owner[slice(*(None if e is None else self.values([e], scope)[0] for e in ends))]
        return owner[self.values([node.slice], scope)[0]]

    def called(self, node: ast.Call, scope: Scope) -> Read:
        if isinstance(node.func, ast.Name) and not scope.find(node.func.id):
            if node.func.id == "map" and getattr(node.args[0], "id", "") == "chr":
                return [chr(number) for number in self.values(node.args[1:], scope)[0]]
            if node.func.id == "reversed":
                return self.values(node.args, scope)[0][::-1]
            return FUNCTIONS[node.func.id](*self.values(node.args[:1], scope))
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in METHODS:
            return UNREAD
        owner, *given = self.values([node.func.value, *node.args], scope)
        name = node.func.attr
        if not isinstance(owner, str | bytes) or (name == "format" and WIDE.search(str(owner))):
            return UNREAD
        if name == "join":
            return joined(owner, given[0])
        if name == "replace" and len(owner) * max(map(len, given[:2])) > LONGEST:
            return UNREAD
        return getattr(owner, name)(*given)

    def choices(self, node: ast.expr, scope: Scope) -> Iterator[str]:
        """Yield every string that an expression may be, as far as they can be read."""
        found = (self.text(one, around) for one, around in self.reach(node, scope))
        yield from dict.fromkeys(text for text in found if text is not None)

    def possible(self, node: ast.expr, scope: Scope) -> list[str]:
        """Return every string that an expression may be by the code and the folder's JSON files."""
        found = list(self.choices(node, scope))
        for one, around in self.reach(node, scope):
            found += self.told(one, around, set())
        return list(dict.fromkeys(found))

    def told(self, node: ast.expr, scope: Scope, seen: set[tuple[type, str]]) -> Iterator[str]:
        """Yield what the JSON files, an assignment or a default say of `x.key` or `x["key"]`."""
        key = self.key_of(node, scope)
        if key is None or (type(node), key) in seen:
            return
        seen.add((type(node), key))
        yield from self.data.get(key, ())
        values = list(self.attributes.get(key, ()) if isinstance(node, ast.Attribute) else ())
        if isinstance(node, ast.Name):
            values = [(default, scope.chain()[-1]) for default in self.defaults.get(key, ())]
        for value, around in values:
            yield from self.choices(value, around)
            for one, where in self.reach(value, around):
                yield from self.told(one, where, seen)

    def key_of(self, node: ast.expr, scope: Scope) -> str | None:
        """Return the name under which an expression reads data, or that of a parameter."""
        if isinstance(node, ast.Attribute):
            return node.attr
        if isinstance(node, ast.Name):
            return node.id if any(value is None for _, value in scope.find(node.id)) else None
        if isinstance(node, ast.Subscript):
            return self.text(node.slice, scope)
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            place = 1 if name == "getattr" else 0
            if name in ("get", "pop", "getattr") and len(node.args) > place:
                return self.text(node.args[place], scope)
        return None

    def reach(self, node: ast.expr, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        """Return the expressions one of which an expression is, by all the ways to name it."""
        if node not in self.reached:
            found = {node: scope}
            waiting = [(node, scope)]
            while waiting:
                one, around = waiting.pop()
                if self.text(one, around) is None:
                    new = [pair for pair in self.followed(one, around) if pair[0] not in found]
                    found.update(new)
                    waiting += new
                if len(found) > REACH:
                    raise TooEntangledError("one name may be too many things")
            self.reached[node] = list(found.items())
        return self.reached[node]

    def followed(self, node: ast.expr, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """Yield the expressions, one of which is the value of this one."""
        inner: list[ast.expr] = []
        if isinstance(node, ast.Name):
            bound = scope.find(node.id)[:CHOICES]
            yield from ((value, s) for s, value in bound if isinstance(value, ast.expr))
        elif isinstance(node, ast.IfExp):
            inner = [node.body, node.orelse]
        elif isinstance(node, ast.BoolOp):
            inner = node.values
        elif isinstance(node, ast.NamedExpr):
            inner = [node.value]
        elif isinstance(node, ast.Subscript):  # of a written table
            yield from self.items.get(getattr(node.value, "id", ""), ())
            for table, around in [(node.value, scope), *self.followed(node.value, scope)]:
                elements = getattr(table, "values", getattr(table, "elts", []))
                if isinstance(table, ast.Dict | ast.List | ast.Tuple):
                    yield from ((element, around) for element in elements[:CHOICES])
        yield from ((one, scope) for one in inner)

    def is_made_up(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether code makes a string of its own constants in a way that cannot be read."""
        return any(self.hides(one, around) for one, around in self.reach(node, scope))

    def hides(self, node: ast.expr, scope: Scope) -> bool:
        if self.text(node, scope) is not None:
            return False
        while isinstance(node, ast.Subscript):
            node = node.value
            if self.is_written(node, scope):
                return True
        if not isinstance(node, ast.Call):
            return False  # data, or judged by the parts that can be read
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method in PARTS and isinstance(node.func, ast.Attribute):
            return self.is_written(node.func.value, scope) or self.hides(node.func.value, scope)
        name = getattr(node.func, "id", method)
        is_own = name in self.own or name in DECODERS
        constants = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant))
        return is_own or any(isinstance(constant, str | bytes) for constant in constants)

    def is_complete(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether every string that an expression may be can be read."""
        if self.text(node, scope) is not None:
            return True
        inner = list(self.followed(node, scope))
        bound = scope.find(node.id) if isinstance(node, ast.Name) else inner
        return (
            bool(inner)
            and len(bound) == len(inner)
            and all(self.text(one, around) is not None for one, around in inner)
        )

    def is_written(self, node: ast.expr, scope: Scope) -> bool:
        return isinstance(self.value(node, scope), str | bytes | list)

    def shape(self, node: ast.expr, scope: Scope, depth: int = 9) -> str:
        """Return a pattern of the strings that an expression may be, ".*" for what is not known."""
        text = self.text(node, scope)
        if text is not None:
            return re.escape(text)
        if isinstance(node, ast.Name) and depth:
            found = scope.find(node.id)
            if len(found) == 1 and isinstance(found[0][1], ast.expr):
                return self.shape(found[0][1], found[0][0], depth - 1)
        if isinstance(node, ast.Subscript) and (known := [*self.choices(node, scope)]):
            return f"(?:{'|'.join(map(re.escape, known[:CHOICES]))})"
        if isinstance(node, ast.JoinedStr):
            return "".join(self.shape(part, scope, depth) for part in node.values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.shape(node.left, scope, depth) + self.shape(node.right, scope, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            template = self.text(node.left, scope)
            return re.sub("%.", ".*", re.escape(template)) if template else ".*"
        return ".*"


def joined(between: Any, parts: list) -> Any:
    if sum(map(len, parts)) + len(between) * len(parts) > LONGEST:
        return UNREAD
    return between.join(parts)


def defaults_of(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield (parameter, default) of a function."""
    if isinstance(node, Function):
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        first = len(positional) - len(given.defaults)
        pairs = [*zip(positional[first:], given.defaults, strict=True)]
        pairs += [(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d]
        yield from ((parameter.arg, default) for parameter, default in pairs)


def functions_of(scopes: Scopes) -> Iterator[str]:
    for node in scopes.scope:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
