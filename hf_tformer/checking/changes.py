"""Judge changes of classes, functions and tables that belong to libraries."""

import ast
import re

from .definitions import defined, module_file, text_of
from .judging import Found, Judging, Place, shown
from .names import NOT_UNDERSTOOD, is_module
from .scopes import Scope

MUTATORS = {
    *("update", "append", "pop", "clear", "setdefault", "extend", "insert", "remove", "popitem"),
    *("add", "discard", "register", "register_pipeline", "__setitem__", "__delitem__", "__ior__"),
}
SETS_ITEM = {"setdefault", "update", "__setitem__", "register", "pop"}
# Classes whose subclasses share their table.
SHARING = re.compile(r"transformers\..*Interface")
# Functions that change the class that they are given; what the last is given may be a function.
DECORATORS = {"dataclasses.dataclass", "functools.total_ordering"}
CHANGES = DECORATORS | {
    *("functools.update_wrapper", "typing.no_type_check", "torch.jit.ignore", "torch.jit.unused"),
    "torch.jit.export",
}
# The documented way to add an attention of one's own.
MADE_TO_BE_EXTENDED = {
    *("AttentionInterface", "AttentionMaskInterface"),
    *("ALL_ATTENTION_FUNCTIONS", "ALL_MASK_ATTENTION_FUNCTIONS"),
}
# A list that other code only reads, and to which modeling files of transformers used to add.
ADDED_TO = "ALL_LAYERNORM_LAYERS"


class Changes(Judging):
    """Judges what changes the code of others."""

    def sharing(self, node: ast.ClassDef, scope: Scope) -> Found:
        """Judge subclasses that share, or replace, what all models look up."""
        bases = [name for base in node.bases for name in self.libraries(base, scope)]
        for name in bases:
            if SHARING.fullmatch(name):
                yield NOT_UNDERSTOOD, node.lineno, f"a subclass of {name}, which shares its table"
        inside = self.scopes.scope[node.body[0]]
        for value in inside.of("_layer_type"):
            text = self.texts.text(value, inside) if isinstance(value, ast.expr) else None
            if text is None or f'"{text}":' in text_of("transformers.cache_utils"):
                what = f"_layer_type of {node.name}, which replaces the cache of all such layers"
                yield NOT_UNDERSTOOD, node.lineno, what

    def changed_class(self, node: ast.Call, functions: frozenset[str], scope: Scope) -> Found:
        inner = self.meanings.of(node.func.func, scope) if isinstance(node.func, ast.Call) else ()
        documents = any(name.endswith("_docstrings") for name in inner)
        for first in node.args[:1] if functions & CHANGES or documents else ():
            for name in self.libraries(first, scope):
                yield "tampering", node.lineno, f"{shown(node, 60)}, which changes {name}"
            if functions & DECORATORS and getattr(first, "id", "") not in self.own.classes:
                yield NOT_UNDERSTOOD, node.lineno, f"{shown(node)}, of a class out of sight"

    def mutation(self, node: ast.Call, method: ast.Attribute, scope: Scope) -> Found:
        """Judge methods that change their object, if it is a library's."""
        if method.attr in ("__setattr__", "__delattr__") and len(node.args) > 1:
            for owner in self.libraries(node.args[0], scope):
                yield from self.changed(f"{owner}.*", node)
        owners = self.libraries(method.value, scope) if method.attr in MUTATORS else []
        replaces = method.attr == "register" and "exist_ok" in {k.arg for k in node.keywords}
        if replaces and not owners:
            yield NOT_UNDERSTOOD, node.lineno, f"{shown(node)}, which may replace a class"
        for owner in owners:
            name = owner.rpartition(".")[2]
            is_class = name not in (name.lower(), name.upper())
            if (is_module(owner) and not name.isupper()) or owner.startswith("os.environ"):
                continue
            if method.attr == "register" and is_class:
                yield from self.registration(node, owner, scope)
            elif method.attr == "append" and name == ADDED_TO:
                yield "global flags", node.lineno, f"{owner}.append"
            elif not is_class:
                keys = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "key")]
                key = keys[0] if keys and method.attr in SETS_ITEM else None
                yield from self.item_changed(owner, key, node, scope)

    def extended(self, node: ast.Name, scope: Scope) -> Found:
        """Judge `name |= ...` and `name += [...]`, which change the table of that name."""
        parent = self.scopes.parent[node]
        if not isinstance(parent, ast.AugAssign):
            return
        is_listed = isinstance(parent.op, ast.Add) and isinstance(
            parent.value, (ast.List, ast.Tuple)
        )
        for owner in self.libraries(node, scope):
            if isinstance(parent.op, ast.BitOr) or is_listed:
                yield from self.item_changed(owner, None, node, scope)

    def registration(self, node: ast.Call, owner: str, scope: Scope) -> Found:
        """Judge AutoModel.register(config, model) and the like, which may replace others' code."""
        replaced = next((k.value for k in node.keywords if k.arg == "exist_ok"), None)
        replaces = replaced is not None and getattr(replaced, "value", True)
        for value in [*node.args, *(k.value for k in node.keywords if k.arg != "exist_ok")]:
            for name in self.libraries(value, scope):
                yield "tampering", node.lineno, f"{owner}.register({name})"
        key = node.args[0] if node.args else None
        is_auto = owner.rpartition(".")[2].startswith("Auto")
        is_class = isinstance(key, ast.Name | ast.Attribute) and not self.texts.text(key, scope)
        if is_auto and is_class:
            return
        text = self.texts.text(key, scope) if key else None
        is_known = is_auto and text and module_file(f"transformers.models.{text.replace('-', '_')}")
        if text is None:
            yield NOT_UNDERSTOOD, node.lineno, f"{owner}.register(...)"
        elif is_auto and is_known and replaces:
            yield "tampering", node.lineno, f"{owner}.register({text!r}, exist_ok=True)"
        elif not is_auto:
            yield from self.item_changed(owner, key, node, scope)

    def item_changed(self, owner: str, key: ast.expr | None, node: Place, scope: Scope) -> Found:
        """Judge a change in a table of a library: an item of its own harms no other code."""
        if owner.startswith("."):
            return
        text = self.texts.text(key, scope) if key else None
        place = defined(owner)
        if text is None or place is None:
            kind = "tampering"
        else:
            ends = range(place.count(".") + 1, 0, -1)
            modules = (".".join(place.split(".")[:i]) for i in ends)
            source = next((text_of(module) for module in modules if module_file(module)), "")
            is_taken = not source or f'"{text}"' in source or f"'{text}'" in source
            kind = "tampering" if is_taken else "global flags"
            if not is_taken and owner.rpartition(".")[2] in MADE_TO_BE_EXTENDED:
                return
        yield kind, node.lineno, f"{owner}[{text or '...'}] = ..."
