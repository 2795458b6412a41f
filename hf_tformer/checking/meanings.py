"""Find what the names in the code of a folder stand for.

import os as o           o → os
s = o.system             s → os.system
from .other import s     in another file, the same
"""

import ast
from collections.abc import Iterator
from typing import Any

from .names import HARMLESS, kind_of
from .scopes import Scope, Scopes, is_builtin
from .texts import Texts, TooEntangledError

ROUNDS = 12  # of following names from binding to binding
MEANINGS = 40  # of one name
PARTS = 16  # of one dotted name
STEPS = 50_000  # of one reading, and this many more for each node of the code
STEPS_OF_NODE = 20


class Meanings:
    """The dotted names that an expression may stand for."""

    def __init__(self, files: dict[str, Scopes], data: dict[str, list[str]] | None = None) -> None:
        self.files, self.texts = files, Texts(files, data)
        self.text = self.texts.text
        self.steps = STEPS + STEPS_OF_NODE * sum(len(scopes.scope) for scopes in files.values())
        self.known: dict[Any, frozenset[str]] = {}  # by expression
        self.lost: set[ast.expr] = set()  # has too many meanings to be followed
        bound = [(s, v) for scopes in files.values() for s, v in bound_expressions(scopes)]
        for _ in range(ROUNDS):
            self.named: dict[tuple[Scope, str], frozenset[str]] = {}
            self.found: dict[tuple[ast.expr, Scope], frozenset[str]] = {}
            found = {value: self.of(value, scope) for scope, value in bound}
            if found == self.known:
                break
            changed = {value for value in found if found[value] != self.known.get(value)}
            self.known = found
        else:
            self.lost |= changed
            self.named, self.found = {}, {}

    def step(self, count: int = 1) -> None:
        self.steps -= count
        if self.steps < 0:
            raise TooEntangledError("following its names has no end")

    def of(self, node: ast.expr, scope: Scope) -> frozenset[str]:
        if (node, scope) not in self.found:
            self.step()
            found = frozenset(self.resolve(node, scope))
            if len(found) > MEANINGS or any(name.count(".") > PARTS for name in found):
                self.lost.add(node)
                found = frozenset()
            self.found[node, scope] = found
        return self.found[node, scope]

    def resolve(self, node: ast.expr, scope: Scope) -> Iterator[str]:
        if isinstance(node, ast.Name):
            key = scope, node.id
            if key not in self.named:
                self.named[key] = frozenset(self.of_name(node.id, scope))
            yield from self.named[key]
        elif isinstance(node, ast.Attribute):
            yield from self.below(self.of(node.value, scope), node.attr)
        elif isinstance(node, (ast.IfExp, ast.BoolOp, ast.NamedExpr)):
            for value, around in self.texts.followed(node, scope):
                yield from self.of(value, around)
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            if "builtins.getattr" in self.of(node.func, scope):
                for attribute in self.texts.possible(node.args[1], scope):
                    yield from self.below(self.of(node.args[0], scope), attribute)
                yield from self.of(node.args[2], scope) if len(node.args) > 2 else ()
        elif isinstance(node, ast.Subscript) and self.is_namespace(node.value, scope):
            for name in self.texts.choices(node.slice, scope):
                yield from self.of_name(name, scope.chain()[-1])

    def is_namespace(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether an expression is globals(), the names of the file."""
        called = self.of(node.func, scope) if isinstance(node, ast.Call) else ()
        return "builtins.globals" in called

    def of_name(self, name: str, scope: Scope) -> Iterator[str]:
        """Yield all that a name may stand for.

        Only a parameter or a local name of a function hides what the name means outside of it: any
        other binding may stand in code that is not executed.
        """
        found = scope.find(name)
        for _, value in found:
            yield from self.expand(value) if isinstance(value, str) else self.known.get(value, ())
        if found and found[-1][0].kind in ("function", "comprehension"):
            return
        for star in (star for s in scope.chain() for star in s.stars):
            self.step(30)
            for dotted in self.below([star], name):
                if not found or kind_of(dotted) not in (HARMLESS, "unknown"):
                    yield dotted
        if is_builtin(name):
            yield f"builtins.{name}"

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
        self.step(3)
        seen.add(dotted)
        name, _, below = rest.partition(".")
        module = self.files[file].module
        found = [f"{star}.{rest}" for star in module.stars]
        for _, value in module.find(name):
            meanings = [value] if isinstance(value, str) else self.known.get(value, ())
            found += [f"{meaning}.{below}" if below else meaning for meaning in meanings]
        return [m for meaning in found for m in self.expand(meaning, seen)]


def bound_expressions(scopes: Scopes) -> Iterator[tuple[Scope, ast.expr]]:
    for scope in {id(s): s for s in [scopes.module, *scopes.scope.values()]}.values():
        for values in scope.bindings.values():
            yield from ((scope, value) for value in values if isinstance(value, ast.expr))
