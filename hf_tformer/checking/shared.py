"""Judge changes of what models share: methods of base classes, tables, settings of torch.

A class of a library can be reached in more ways than can be followed: as an argument, an item, or
the `self` of a method that is called with it. So the name counts that is set: no honest code gives
another object another `forward`.
"""

import ast
import re
from functools import cache, cached_property

from .changes import MUTATORS
from .definitions import text_of
from .judging import ITSELF, Found, Judging, Place, shown
from .known_names_of_objects import SHARED
from .names import NOT_UNDERSTOOD, attribute_kind, is_dangerous, words
from .scopes import Function, Scope

METHODS_OF = (
    *("torch.nn.modules.module", "transformers.modeling_utils", "transformers.generation.utils"),
    *("transformers.configuration_utils", "transformers.tokenization_utils_base"),
)
METHOD = re.compile(r"(?m)^((?: {4}@.*\n)*) {4}(?:async )?def ([a-z_]\w*)\(")
MORE_METHODS = {"__call__", "forward", "reset_parameters"}  # which are no functions there
NO_FUNCTIONS = (
    *(ast.Constant, ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.JoinedStr),
    *(ast.Dict, ast.List, ast.Tuple, ast.Set),
)
MAKES_FUNCTIONS = {"functools.partial", "functools.partialmethod", "types.MethodType"}
TABLE = re.compile(r"(torch|transformers)\..*\b(ACT2\w+|ALL_\w+|\w+_(FUNCTIONS|REGISTRY))")
STANDS_FOR = {"attribute_map", "base_model_prefix"}  # transformers reads what they name
REBUILDS = {"__init__", "__setstate__", "__dict__", "__class__", "__iadd__"}
ASKS = {"len", "list", "sorted", "set", "tuple", "dict", "isinstance", "iter"}
# What changes how all code computes, until it is left.
SETTINGS = {
    *("torch.no_grad", "torch.enable_grad", "torch.inference_mode", "torch.set_grad_enabled"),
    *("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.device"),
    *("torch.autograd.set_grad_enabled", "torch.autograd.grad_mode.set_grad_enabled"),
}
CLOSED = {"contextlib.contextmanager", "contextlib.asynccontextmanager"}
PLAIN = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Compare)
PLAIN_CALLS = {"str", "int", "float", "len", "round", "repr", "bool"}
OF_CLASSES = words(SHARED)
OBJECTS = {"config", "model", "module", "layer", "tokenizer", "processor"}


class Shared(Judging):
    """Judges what a model changes for all others."""

    def replaced(self, name: str, owner: ast.expr, value: ast.expr | None, scope: Scope) -> Found:
        """Judge an attribute that is set, and that is a method of other classes."""
        if name not in methods() or self.is_own_class(owner):
            return
        is_own = getattr(owner, "id", "") in ITSELF
        if not is_own or value is None or self.may_be_function(value, scope):
            yield NOT_UNDERSTOOD, owner.lineno, f"{shown(owner)}.{name} = ..., which is a method"

    def flagged(
        self, name: str | None, value: ast.expr | None, scope: Scope, is_argument: bool = False
    ) -> Found:
        """Judge what is given under a name, also a name that stands for a method of a model."""
        yield from super().flagged(name, value, scope, is_argument)
        if value is None or name not in STANDS_FOR:
            return
        values = value.values if isinstance(value, ast.Dict) else [value]
        for one in values:
            texts = self.texts.possible(one, scope)
            is_theirs = getattr(one, "attr", "") == name  # {**Parent.attribute_map, ...}
            is_method = any(t in methods() or is_dangerous(attribute_kind(t)) for t in texts)
            if is_method or not (texts or is_theirs):
                yield NOT_UNDERSTOOD, one.lineno, f"{name} of {shown(one)}"

    def is_own_class(self, node: ast.expr) -> bool:
        """Return whether a name is a class of this folder, and nothing else in this file."""
        name = getattr(node, "id", "")
        return name in self.own.classes and name not in self.assigned_names

    @cached_property
    def assigned_names(self) -> set[str]:
        """The names of this file that are bound by an assignment, a loop or a call."""
        nodes = self.scopes.scope
        names = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        return names | {n.arg for n in nodes if isinstance(n, ast.arg)}

    def may_be_function(self, value: ast.expr, scope: Scope) -> bool:
        if isinstance(value, NO_FUNCTIONS):
            return False
        if isinstance(value, ast.Call):
            name = getattr(value.func, "id", getattr(value.func, "attr", ""))
            makes = bool(self.meanings.of(value.func, scope) & MAKES_FUNCTIONS)
            return makes or name in self.own.functions
        return True

    def table(self, node: ast.expr, meanings: frozenset[str], scope: Scope) -> Found:
        """Judge a table of a library in which all models look, where its use cannot be followed."""
        for dotted in sorted(meanings):
            owner, _, method = dotted.rpartition(".")
            is_handed = method in MUTATORS and node not in self.called
            is_method = (is_handed or method in REBUILDS) and TABLE.fullmatch(owner)
            if is_method or (TABLE.fullmatch(dotted) and not self.table_may_stand(node, scope)):
                yield "handed on", node.lineno, dotted

    def table_may_stand(self, node: ast.expr, scope: Scope) -> bool:
        parent = self.scopes.parent[node]
        if isinstance(parent, ast.Call) and getattr(parent.func, "id", "") in ASKS:
            return True
        is_asked = isinstance(parent, ast.Compare) and node in parent.comparators
        is_looped = isinstance(parent, ast.For | ast.comprehension) and parent.iter is node
        is_unpacked = isinstance(parent, ast.Starred)  # which gives the keys
        return is_asked or is_looped or is_unpacked or self.may_stand(node, scope)

    def changed_for_all(self, owner: ast.expr, node: Place, scope: Scope) -> Found:
        """Judge a change of an object that may be an attribute which a class has for all."""
        for one, _ in self.texts.reach(owner, scope):
            if isinstance(one, ast.Attribute):
                known = self.texts.attributes.get(one.attr, ())
                for value in (one, *(value for value, _ in known)):
                    if getattr(value, "attr", "") in OF_CLASSES:
                        what = f"{shown(value)}, the class's, is changed"
                        yield "global flags", node.lineno, what

    def setting(self, node: ast.Call, functions: frozenset[str], scope: Scope) -> Found:
        """Judge settings of torch that are entered and perhaps not left again."""
        method = getattr(node.func, "attr", "")
        is_bare = isinstance(self.scopes.parent[node], ast.Expr)
        if is_bare and any(name.endswith(".set_grad_enabled") for name in functions):
            yield "global flags", node.lineno, "set_grad_enabled outside of `with`"
        if method == "__enter__":
            yield "global flags", node.lineno, f"{shown(node.func)} outside of `with`"
        stack = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        if method == "enter_context" and "contextlib.ExitStack" in self.makers(stack, scope):
            yield "global flags", node.lineno, f"{shown(node.func)} outside of `with`"

    def held_open(self, node: Function, scope: Scope) -> Found:
        """Judge a generator that may be left with a setting of torch which it has entered."""
        decorators = getattr(node, "decorator_list", [])
        if any(self.meanings.of(one, scope) & CLOSED for one in decorators):
            return
        for inner in ast.walk(node):
            for item in inner.items if isinstance(inner, ast.With) and has_yield(inner) else ():
                call = item.context_expr
                around = self.scopes.scope.get(call, scope)
                if isinstance(call, ast.Call) and self.meanings.of(call.func, around) & SETTINGS:
                    yield "global flags", call.lineno, f"{shown(call)} around a yield"

    def formatted(self, node: ast.Attribute, scope: Scope) -> Found:
        """Judge str.format with a template that is data: it may read attributes of attributes."""
        call = self.called.get(node)
        if "builtins.str.format" in self.meanings.of(node, scope):
            yield NOT_UNDERSTOOD, node.lineno, "str.format, handed on"
        elif call and not any(self.texts.choices(node.value, scope)):
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            given = [value for value in given if not self.is_plain(value, scope)]
            leads = any(self.may_lead_on(value, scope) for value in given)
            kind = NOT_UNDERSTOOD if leads else "computed names"
            if given:
                yield kind, node.lineno, f"{shown(call)}, whose template is data"

    def may_lead_on(self, value: ast.expr, scope: Scope) -> bool:
        """Return whether a value is an object whose attributes lead to modules."""
        names = {getattr(one, "id", "") for one, _ in self.texts.reach(value, scope)}
        is_object = names & (ITSELF | self.own.functions | self.own.classes | OBJECTS)
        is_starred = isinstance(value, ast.Starred)
        return bool(is_object) or is_starred or bool(self.libraries(value, scope))

    def is_plain(self, value: ast.expr, scope: Scope) -> bool:
        """Return whether a value is a text or a number, whose attributes lead nowhere."""
        reached = self.texts.reach(value, scope)
        names = [(one.id, s) for one, s in reached if isinstance(one, ast.Name)]
        if any(bound is None for name, s in names for _, bound in s.find(name)):
            return False  # a parameter
        ends = [(one, s) for one, s in reached if not list(self.texts.followed(one, s))]
        return all(self.is_made_plain(one, around) for one, around in ends)

    def is_made_plain(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether an expression that leads to no other one is a text or a number."""
        name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        return isinstance(node, PLAIN) or (name in PLAIN_CALLS and not scope.find(name))


@cache
def methods() -> frozenset[str]:
    """Return the names of methods of the classes that models derive from; no properties."""
    found = [pair for module in METHODS_OF for pair in METHOD.findall(text_of(module))]
    names = {name for marks, name in found if "property" not in marks and ".setter" not in marks}
    return frozenset(n for n in names if not n.startswith("__")) | MORE_METHODS


def has_yield(node: ast.With) -> bool:
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))
