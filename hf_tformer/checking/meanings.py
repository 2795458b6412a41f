"""Find what the names in the code of a folder stand for.

import os as o           o → os
s = o.system             s → os.system
from .other import s     in another file, the same
"""

import ast
from collections.abc import Iterator
from typing import Any

from .names import is_dangerous, kind_of
from .scopes import Scope, Scopes, is_builtin

ROUNDS = 12  # of following names from binding to binding
MEANINGS = 40  # of one name
PARTS = 16  # of one dotted name
TEXT = 10_000  # characters of a string that is put together


class Meanings:
    """The dotted names that an expression may stand for."""

    def __init__(self, files: dict[str, Scopes]) -> None:
        self.files = files
        self.known: dict[Any, frozenset[str]] = {}  # by expression
        self.lost: set[ast.expr] = set()  # has too many meanings to be followed
        bound = [(s, v) for scopes in files.values() for s, v in bound_expressions(scopes)]
        for _ in range(ROUNDS):
            self.named: dict[tuple[Scope, str], frozenset[str]] = {}
            found = {value: self.of(value, scope) for scope, value in bound}
            if found == self.known:
                break
            changed = {value for value in found if found[value] != self.known.get(value)}
            self.known = found
        else:
            self.lost |= changed
            self.named = {}

    def of(self, node: ast.expr, scope: Scope) -> frozenset[str]:
        found = frozenset(self.resolve(node, scope))
        if len(found) > MEANINGS or any(name.count(".") > PARTS for name in found):
            self.lost.add(node)
            return frozenset()
        return found

    def resolve(self, node: ast.expr, scope: Scope) -> Iterator[str]:
        if isinstance(node, ast.Name):
            key = scope, node.id
            if key not in self.named:
                self.named[key] = frozenset(self.of_name(node.id, scope))
            yield from self.named[key]
        elif isinstance(node, ast.Attribute):
            yield from self.below(self.of(node.value, scope), node.attr)
        elif isinstance(node, ast.IfExp):
            yield from self.of(node.body, scope) | self.of(node.orelse, scope)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.of(value, scope)
        elif isinstance(node, ast.NamedExpr):
            yield from self.of(node.value, scope)
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            is_getattr = "builtins.getattr" in self.of(node.func, scope)
            if is_getattr and (attribute := self.text(node.args[1], scope)):
                yield from self.below(self.of(node.args[0], scope), attribute)

    def of_name(self, name: str, scope: Scope) -> Iterator[str]:
        found = scope.find(name)
        for _, value in found:
            yield from self.expand(value) if isinstance(value, str) else self.known.get(value, ())
        strict = found and found[-1][0].kind in ("function", "comprehension")
        if strict:
            return
        for star in (star for s in scope.chain() for star in s.stars):
            for dotted in self.below([star], name):
                if not found or is_dangerous(kind_of(dotted)):
                    yield dotted
        builtin = f"builtins.{name}"
        if is_builtin(name) and (not found or is_dangerous(kind_of(builtin))):
            yield builtin

    def below(self, owners: frozenset[str] | list[str], attribute: str) -> Iterator[str]:
        for owner in owners:
            for part in [attribute] if attribute.isidentifier() else attribute.split("."):
                if part != "__call__":  # f.__call__(x) is f(x)
                    owner = f"{owner}.{part}"
            yield from self.expand(owner)

    def expand(self, dotted: str, seen: set[str] | None = None) -> list[str]:
        """Return what a file binds to the name in `.file.name`; any other name stays as it is."""
        file, _, rest = dotted[1:].partition(".")
        if not dotted.startswith(".") or not rest or file not in self.files:
            return [dotted]
        seen = set() if seen is None else seen
        if dotted in seen:
            return []
        seen.add(dotted)
        name, _, below = rest.partition(".")
        module = self.files[file].module
        found = [f"{star}.{rest}" for star in module.stars]
        for _, value in module.find(name):
            meanings = [value] if isinstance(value, str) else self.known.get(value, ())
            found += [f"{meaning}.{below}" if below else meaning for meaning in meanings]
        return [m for meaning in found for m in self.expand(meaning, seen)]

    def text(self, node: ast.AST, scope: Scope, depth: int = 9) -> str | None:
        """Return the string that an expression of constants is, or None if it cannot be read."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if not depth:
            return None
        if isinstance(node, ast.FormattedValue):
            return self.text(node.value, scope, depth - 1)
        if isinstance(node, ast.JoinedStr):
            parts = [self.text(part, scope, depth - 1) for part in node.values]
            return joined(parts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [self.text(side, scope, depth - 1) for side in (node.left, node.right)]
            return joined(parts)
        if isinstance(node, ast.Name):
            found = scope.find(node.id)
            if len(found) == 1 and isinstance(found[0][1], ast.expr):
                return self.text(found[0][1], found[0][0], depth - 1)
        return None


def joined(parts: list[str | None]) -> str | None:
    texts = [part for part in parts if part is not None]
    if len(texts) < len(parts) or sum(map(len, texts)) > TEXT:
        return None
    return "".join(texts)


def bound_expressions(scopes: Scopes) -> Iterator[tuple[Scope, ast.expr]]:
    for scope in {id(s): s for s in [scopes.module, *scopes.scope.values()]}.values():
        for values in scope.bindings.values():
            yield from ((scope, value) for value in values if isinstance(value, ast.expr))
