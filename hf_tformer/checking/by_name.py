"""Judge attributes that code reads or sets by name, and uses of the folder's own functions."""

import ast
from collections.abc import Iterator

from . import names
from .judging import Found, shown
from .names import NOT_UNDERSTOOD
from .scopes import Scope, called_as, is_saving
from .shared import Shared

GETATTR, SETATTR = "builtins.getattr", ("builtins.setattr", "builtins.delattr")
WRITERS = {"save_pretrained", "save_vocabulary", "save_model", "save_config", "save_weights"}
PLAIN_WRITERS = {"save", "dump"}  # of an image, which may be saved into memory
BUFFERS = {"io.BytesIO", "io.StringIO"}


class ByName(Shared):
    """Judges getattr and the like."""

    def by_name(self, node: ast.Call, scope: Scope, functions: frozenset[str]) -> Found:
        """Judge getattr, setattr and delattr."""
        owners = self.meanings.of(node.args[0], scope)
        key = node.args[1]
        attributes = self.texts.possible(key, scope)
        if functions & set(SETATTR):
            for attribute in attributes:
                given = node.args[2] if len(node.args) > 2 else None
                yield from self.flagged(attribute, given, scope)
                yield from self.replaced(attribute, node.args[0], given, scope)
            yield from self.changed_object(node.args[0], scope)
            for owner in owners:
                yield from self.changed(f"{owner}.{(attributes or '*')[0]}", node)
        for dotted in self.meanings.of(node, scope):
            yield from self.meaning(dotted, node, scope)
            if self.is_module(dotted) and not self.may_stand(node, scope):
                yield "handed on", node.lineno, dotted
        for attribute in attributes:
            for part in attribute.split("."):
                yield from self.attribute(part, node, scope, node.args[0])
                yield from self.saving(part, node, node.args[0], scope)
        if self.texts.text(key, scope) is None:
            yield from self.by_computed_name(node, owners, bool(attributes), scope)

    def by_computed_name(
        self, node: ast.Call, owners: frozenset[str], is_told: bool, scope: Scope
    ) -> Found:
        """Judge getattr(x, name) where the name is data, or cannot be read.

        Honest code reads `getattr(torch, config.dtype)` and calls `getattr(torch, self.reduction)`,
        so that only warns where the folder tells what the name is: that has been judged.
        """
        key = node.args[1]
        what = shown(node, 60)
        modules = sorted(filter(self.is_module, owners))
        if not self.texts.is_complete(key, scope):
            self.take(key, scope, modules)
        is_called = node in self.called and "torch" in modules and not is_told
        if any(name != "torch" and not names.is_harmless_below(name) for name in modules):
            is_library = all(name.split(".")[0] in names.LIBRARY_OF_MODEL for name in modules)
            kind = NOT_UNDERSTOOD if is_library else "handed on"
        elif is_called or self.is_suspect(key, scope):
            kind = NOT_UNDERSTOOD
        else:
            kind = "computed names"
        yield kind, node.lineno, what

    def is_suspect(self, key: ast.expr, scope: Scope) -> bool:
        """Return whether the text of a key that cannot be read may be a dangerous attribute."""
        shape = self.texts.shape(key, scope)
        known = len(shape.replace(".*", "")) > 2
        assigned = self.texts.attributes.get(getattr(key, "attr", ""), ())
        return (
            self.texts.is_made_up(key, scope)
            or any(self.texts.is_made_up(value, around) for value, around in assigned)
            or (known and names.is_dangerous_shape(shape))
        )

    def take(self, key: ast.expr, scope: Scope, modules: list[str]) -> None:
        """Note that the function around takes the name of an attribute as an argument.

        An attribute that is the name may be assigned from an argument of `__init__`.
        """
        for value, inside in self.texts.attributes.get(getattr(key, "attr", ""), ()):
            if isinstance(value, ast.Name):
                self.take(value, inside, modules)
        if isinstance(key, ast.Name):
            for around in scope.chain():
                if around.kind == "function" and key.id in around.bindings:
                    for name in called_as(around):
                        takers = self.own.takers.setdefault(name, {})
                        takers.setdefault(key.id, set()).update(modules)
                    return

    def find_takers(self) -> None:
        """Note the functions that hand a parameter to a function that takes a name."""
        for node, scope in self.scopes.scope.items():
            for value, modules in self.names_given(node, scope):
                self.take(value, scope, sorted(modules))

    def names_given(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.expr, set[str]]]:
        """Yield (argument, modules) of a call of a function that reads that attribute of them."""
        if not isinstance(node, ast.Call):
            return
        for one, _ in self.texts.reach(node.func, scope):
            name = getattr(one, "id", getattr(one, "attr", ""))
            for parameter, modules in list(self.own.takers.get(name, {}).items()):
                yield from ((value, modules) for value in self.given(node, name, parameter))

    def given(self, node: ast.Call, name: str, parameter: str) -> Iterator[ast.expr]:
        """Yield what a call of one of the folder's functions gives for a parameter."""
        yield from (k.value for k in node.keywords if k.arg in (parameter, None))
        for position in self.own.positions.get((name, parameter), ()):
            yield from node.args[position : position + 1]

    def of_own_functions(self) -> Found:
        """Judge uses of the folder's own functions, once it is known what they do."""
        for node, scope in self.scopes.scope.items():
            for value, modules in self.names_given(node, scope):
                yield from self.taken(value, modules, scope)
            if isinstance(node, ast.Call):
                function = getattr(node.func, "id", getattr(node.func, "attr", ""))
                for parameter in self.own.changers.get(function, ()):
                    for value in self.given(node, function, parameter):
                        for library in self.libraries(value, scope):
                            yield "tampering", node.lineno, f"{function}({library})"
            writers = self.own.writers & self.own.functions
            if writers and not scope.saving() and isinstance(node, ast.expr):
                for name in writers.intersection(self.named(node, scope)):
                    yield "file writes", node.lineno, f"{name}, which saves"

    def named(self, node: ast.expr, scope: Scope) -> list[str]:
        """Return the names under which an expression may read a function of this folder."""
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            return [getattr(node, "attr", getattr(node, "id", ""))]
        if not isinstance(node, ast.Call) or len(node.args) < 2:
            return []
        if GETATTR not in self.meanings.of(node.func, scope):
            return []
        return list(self.texts.choices(node.args[1], scope))

    def taken(self, value: ast.expr, modules: set[str], scope: Scope) -> Found:
        possible = self.texts.possible(value, scope)
        for text in possible:
            for part in text.split("."):
                yield from self.attribute(part, value, scope)
            for module in modules:
                yield from self.meaning(f"{module}.{text}", value, scope)
        is_made = not isinstance(value, ast.Name | ast.Attribute | ast.Constant)
        is_hidden = len(self.texts.shape(value, scope).replace(".*", "")) <= 2
        is_unread = bool(modules) and is_made and is_hidden and not possible
        if is_unread or self.is_suspect(value, scope):
            yield NOT_UNDERSTOOD, value.lineno, f"the name {shown(value)}"

    def saving(self, name: str, node: ast.expr, owner: ast.expr, scope: Scope) -> Found:
        """Judge methods that save, outside of methods that save."""
        call = self.called.get(node)
        if name in PLAIN_WRITERS:
            first = [*call.args[:1], *(k.value for k in call.keywords)] if call else []
            made = [
                n for value in first for n, _ in [(value, 0), *self.texts.followed(value, scope)]
            ]
            makers = [self.meanings.of(n.func, scope) for n in made if isinstance(n, ast.Call)]
            in_memory = any(found & BUFFERS for found in makers)
            kind = "saved files" if scope.saving() or in_memory else NOT_UNDERSTOOD
        elif not is_saving(name) or (name in self.own.names and name not in WRITERS):
            return
        elif scope.saving():
            kind = "saved files"
        elif call or name in WRITERS:
            kind = "file writes"
        else:
            return  # config.save_memory is a value
        if call or name in {*WRITERS, "save"}:
            yield kind, node.lineno, name

    def by_library(self, node: ast.Call, functions: frozenset[str], scope: Scope) -> Found:
        """Judge calls of functions of the standard library that read or set attributes by name."""
        if functions & {"functools.update_wrapper", "functools.wraps"}:
            most = 1 if "functools.wraps" in functions else 2
            if len(node.args) > most or {k.arg for k in node.keywords} - {"wrapped", "wrapper"}:
                yield NOT_UNDERSTOOD, node.lineno, shown(node, 60)
        if functions & {"operator.attrgetter", "operator.methodcaller"}:
            yield "unknown", node.lineno, shown(node, 60)
            for value in node.args if "operator.attrgetter" in functions else node.args[:1]:
                yield from self.taken(value, set(), scope)
                if not any(self.texts.choices(value, scope)):
                    yield NOT_UNDERSTOOD, node.lineno, shown(node, 60)
