"""Find every reference in code that is not harmless, with its line and its kind of names.KINDS.

References are judged, not calls: code that names a dangerous function may call it elsewhere. So is
a module that is used as a value, because any of its attributes could be read elsewhere.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from . import names
from .meanings import Meanings
from .names import HARMLESS, SECRET_TEXTS, SECRET_VARIABLES, attribute_kind, is_module, kind_of
from .scopes import Function, Scope, Scopes

WRITING = re.compile(r"[rbtU]*[wax+][rwaxbt+U]*")
# Nodes around a module that do not hand it on: it is tested, or an attribute of it is read.
LOOKED_AT = (
    *(ast.Attribute, ast.Compare, ast.If, ast.While, ast.Assert, ast.UnaryOp, ast.Expr),
    *(ast.Delete, ast.Subscript, ast.IfExp, ast.BoolOp, ast.NamedExpr),
)
GETATTR, SETATTR = "builtins.getattr", ("builtins.setattr", "builtins.delattr")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
TRUST = "trust_remote_code"
TRUSTING = re.compile(r"(?i)trust_remote_code[\"']\s*:\s*[^\s0fn]")  # in a string of JSON
MAKES_FIELDS = {"__annotations__", "__prepare__"}  # a dataclass puts their names into code
TYPED_DICTS = {"typing.TypedDict", "typing_extensions.TypedDict"}
LOADING = {"from_config", "from_pretrained", "generate"}
# argument → the kind of a call with it, and the value that is dangerous
FLAGS = {
    TRUST: ("foreign code", True),
    "custom_generate": ("foreign code", True),
    "allow_pickle": ("pickle", True),
    "weights_only": ("pickle", False),
    "eval_str": ("eval", True),
    "push_to_hub": ("network", True),
}
Place = ast.expr | ast.stmt | ast.pattern  # a node that has a line
Found = Iterator[tuple[str, int, str]]  # kind, line, what


@dataclass(frozen=True, order=True)
class Reference:
    """A place in a file that a reader should know of; `kind` is a key of names.KINDS."""

    kind: str
    file: str
    line: int
    what: str


def references(trees: dict[str, ast.Module]) -> Iterator[Reference]:
    """Yield every reference in these files (name → tree) that is not harmless."""
    files = {
        name.removesuffix(".py"): Scopes(tree, folder=name[: name.rfind("/") + 1])
        for name, tree in trees.items()
    }
    meanings = Meanings(files)
    for name, scopes in files.items():
        for kind, line, what in sorted(set(Judge(scopes, meanings).everything())):
            yield Reference(kind, f"{name}.py", line, what)


class Judge:
    """Judges each node of a file; its methods yield (kind, line, what) of each reference."""

    def __init__(self, scopes: Scopes, meanings: Meanings) -> None:
        self.scopes, self.meanings = scopes, meanings
        self.called = {node.func: node for node in scopes.scope if isinstance(node, ast.Call)}
        self.docstrings = {node.value for node in scopes.scope if isinstance(node, ast.Expr)}
        assigned = scopes.assigned.items()  # a name in a class body is an attribute elsewhere
        self.followed = {v for name, v in assigned if scopes.scope[name].kind != "class"}

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
        elif isinstance(node, ast.Call):
            yield from self.call(node, scope)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                name = self.meanings.text(key, scope) if key else None
                yield from self.kernel(name, value, scope)
        elif isinstance(node, (ast.Constant, ast.BinOp, ast.JoinedStr)):
            yield from self.text(node, scope)
        elif isinstance(node, ast.MatchClass):
            for name in node.kwd_attrs:
                yield from self.attribute(name, node, scope)
        elif isinstance(node, Function | ast.ClassDef):
            yield from self.definition(getattr(node, "name", ""), node)
        for name in ("annotation", "returns"):
            yield from self.annotation(getattr(node, name, None), scope)

    def annotation(self, annotation: ast.expr | None, scope: Scope) -> Found:
        """Judge strings in an annotation that are not constants: they are code when evaluated."""
        nodes = ast.walk(annotation) if annotation else ()
        for node in (n for n in nodes if isinstance(n, ast.expr)):
            if not isinstance(node, ast.Constant) and self.meanings.text(node, scope) is not None:
                yield "eval", node.lineno, f"an annotation of text, {ast.unparse(node)[:40]}"

    def kernel(self, name: str | None, value: ast.expr | None, scope: Scope) -> Found:
        """Judge an attention implementation by its name: transformers may download it."""
        if value and "attn_implementation" in (name or ""):
            text = self.meanings.text(value, scope) or ""
            if "/" in text or ":" in text:
                yield "foreign code", value.lineno, f"attn_implementation {text[:60]!r}"

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
            if scope.kind == "class" and any(map(is_module, meanings)):
                yield "handed on", node.lineno, dotted

    def of_kind(self, kind: str, node: Place, scope: Scope, what: str) -> Found:
        if kind in ("file writes", "file deletions"):
            excused = kind == "file writes" and scope.is_saving()
            kind = "saved files" if excused else "file writes"
        if kind != HARMLESS:
            yield kind, node.lineno, what

    def attribute(self, name: str, node: Place, scope: Scope) -> Found:
        yield from self.of_kind(attribute_kind(name), node, scope, name)

    def read(self, node: ast.Name | ast.Attribute, scope: Scope) -> Found:
        meanings = self.meanings.of(node, scope)
        parent = self.scopes.parent[node]
        if isinstance(node, ast.Attribute):
            yield from self.attribute(node.attr, node, scope)
        if isinstance(parent, ast.Attribute) and self.meanings.of(parent, scope):
            return  # the longer name is judged
        for dotted in meanings:
            yield from self.meaning(dotted, node, scope)
        if any(map(is_module, meanings)) and not self.may_stand(node, scope):
            yield "handed on", node.lineno, min(filter(is_module, meanings))
        if getattr(node, "attr", "") == "from_pretrained" and node not in self.called:
            yield "downloads", node.lineno, "from_pretrained"

    def meaning(self, dotted: str, node: ast.expr, scope: Scope) -> Found:
        if dotted.startswith(".") or dotted.endswith(".from_pretrained"):
            return
        call = self.called.get(node)
        if dotted in ("builtins.open", "io.open"):
            yield from self.opened(call, node, scope)
        elif dotted in (GETATTR, *SETATTR) and not call:
            yield "computed names", node.lineno, dotted.removeprefix("builtins.")
        elif names.is_listed(dotted) or names.is_dangerous(kind_of(dotted)):
            what = dotted.removeprefix("builtins.")
            yield from self.of_kind(kind_of(dotted), node, scope, what)

    def opened(self, call: ast.Call | None, node: ast.expr, scope: Scope) -> Found:
        """Judge open(): reading is for a person to see, writing or an unknown mode is dangerous."""
        if call is None and node not in self.followed:
            yield from self.of_kind("file deletions", node, scope, "open, handed on")
        elif call is not None:
            modes = [k.value for k in call.keywords if k.arg in ("mode", None)] or call.args[1:2]
            mode = self.meanings.text(modes[0], scope) if modes else "r"
            kind = "file reads"
            has_star = any(isinstance(argument, ast.Starred) for argument in call.args)
            if mode is None or WRITING.fullmatch(mode) or has_star:
                kind = "file writes"
            yield from self.of_kind(kind, node, scope, f"open() {mode or 'in some mode'}")

    def may_stand(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether a module stands where its use can be followed."""
        parent = self.scopes.parent[node]
        if isinstance(parent, ast.Call):
            asks = self.meanings.of(parent.func, scope) & {"builtins.hasattr", GETATTR, *SETATTR}
            return bool(asks) and parent.args[:1] == [node]
        if isinstance(parent, ast.Subscript):
            return parent.value is node
        if isinstance(parent, (ast.IfExp, ast.BoolOp, ast.NamedExpr)):
            is_test = isinstance(parent, ast.IfExp) and parent.test is node
            return is_test or self.may_stand(parent, self.scopes.scope[parent])
        if isinstance(parent, LOOKED_AT):
            return True
        return node in self.followed

    def written(self, node: ast.Name | ast.Attribute, scope: Scope) -> Found:
        value = getattr(self.scopes.parent[node], "value", None)
        if TRUST in (getattr(node, "id", ""), getattr(node, "attr", "")) and truth(value):
            yield "foreign code", node.lineno, f"{TRUST} = ..."
        if isinstance(node, ast.Name):
            yield from self.definition(node.id, node)
            return
        yield from self.attribute(node.attr, node, scope)
        yield from self.kernel(node.attr, value, scope)
        for owner in self.meanings.of(node.value, scope):
            yield from self.changed(f"{owner}.{node.attr}", node)

    def changed(self, dotted: str, node: Place) -> Found:
        if not dotted.startswith("."):
            kind = "global flags" if kind_of(dotted) == "global flags" else "tampering"
            yield kind, node.lineno, f"{dotted} = ..."

    def definition(self, name: str, node: Place) -> Found:
        """Judge names that Python itself looks up, such as special methods."""
        kind = attribute_kind(name)
        if name in MAKES_FIELDS or (name.startswith("__") and names.is_dangerous(kind)):
            yield kind, node.lineno, name

    def subscript(self, node: ast.Subscript, scope: Scope) -> Found:
        owners = self.meanings.of(node.value, scope)
        if "os.environ" in owners:
            yield from self.variable(node.slice, node, scope)
        elif not isinstance(node.ctx, ast.Load):
            value = getattr(self.scopes.parent[node], "value", None)
            if value is not None:
                yield from self.kernel(self.meanings.text(node.slice, scope), value, scope)
            for owner in owners:
                if not owner.startswith("."):
                    yield "global flags", node.lineno, f"{owner}[...] = ..."

    def variable(self, key: ast.expr, node: Place, scope: Scope) -> Found:
        name = self.meanings.text(key, scope)
        if name is None or SECRET_VARIABLES.search(name):
            kind = "secrets" if name else "computed names"
            yield kind, node.lineno, f"os.environ[{name or '...'}]"

    def call(self, node: ast.Call, scope: Scope) -> Found:
        functions = self.meanings.of(node.func, scope)
        for keyword in node.keywords:
            yield from self.kernel(keyword.arg, keyword.value, scope)
            kind, dangerous = FLAGS.get(keyword.arg or "", ("", False))
            if kind and truth(keyword.value) is not (not dangerous):
                kind = kind if truth(keyword.value) is dangerous else "computed names"
                yield kind, node.lineno, f"{keyword.arg}={ast.unparse(keyword.value)[:40]}"
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method == "eval" and node.args:  # as of a table; a model's eval() takes none
            yield "unknown", node.lineno, "eval with arguments"
        if method in LOADING:
            for keyword in node.keywords:
                if keyword.arg is None and not self.is_written_down(keyword.value, scope):
                    yield "computed names", node.lineno, f"**{ast.unparse(keyword.value)[:40]}"
        if functions & TYPED_DICTS or ("builtins.type" in functions and len(node.args) > 1):
            yield "computed names", node.lineno, ast.unparse(node)[:60]
        if method == "from_pretrained" or any(f.endswith(".from_pretrained") for f in functions):
            yield from self.from_pretrained(node, scope)
        if method == "open" and not functions & {"io.open"}:
            values = [*node.args, *(k.value for k in node.keywords if k.arg == "mode")]
            modes = filter(None, (self.meanings.text(value, scope) for value in values))
            if any(WRITING.fullmatch(mode) for mode in modes):
                yield from self.of_kind("file writes", node, scope, "open() to write")
        if functions & {"os.getenv", "os.environ.get", "os.environ.pop", "os.environ.setdefault"}:
            for key in [*node.args[:1], *(k.value for k in node.keywords if k.arg == "key")]:
                yield from self.variable(key, node, scope)
        if functions & {GETATTR, *SETATTR} and len(node.args) > 1:
            yield from self.by_name(node, scope, functions)

    def is_written_down(self, options: ast.expr, scope: Scope) -> bool:
        """Return whether the names of these options are the caller's, or can be read here."""
        if isinstance(options, ast.Dict):
            return all(not key or self.meanings.text(key, scope) for key in options.keys)
        if isinstance(options, ast.Name):
            bound = scope.find(options.id)
            return all(not isinstance(value, (ast.Call, ast.DictComp)) for _, value in bound)
        return isinstance(options, ast.Attribute)

    def from_pretrained(self, node: ast.Call, scope: Scope) -> Found:
        named = [k.value for k in node.keywords if k.arg == "pretrained_model_name_or_path"]
        first = [self.meanings.text(value, scope) for value in [*node.args[:1], *named]]
        inside = (getattr(n, "value", "") for arg in node.args for n in ast.walk(arg))
        texts = [*first, *(t for t in inside if REPOSITORY.fullmatch(str(t)))]
        if name := next(filter(None, texts), None):
            yield "foreign code", node.lineno, f"from_pretrained({name[:60]!r})"
        else:
            yield "downloads", node.lineno, "from_pretrained"

    def by_name(self, node: ast.Call, scope: Scope, functions: frozenset[str]) -> Found:
        """Judge getattr, setattr and delattr."""
        owners = self.meanings.of(node.args[0], scope)
        attribute = self.meanings.text(node.args[1], scope)
        if functions & set(SETATTR):
            for value in node.args[2:3]:
                yield from self.kernel(attribute, value, scope)
            for owner in owners:
                yield from self.changed(f"{owner}.{attribute or '*'}", node)
        elif any(map(is_module, owners)) and attribute is None:
            yield "handed on", node.lineno, f"getattr({min(owners)}, ...)"
        for dotted in self.meanings.of(node, scope):
            yield from self.meaning(dotted, node, scope)
            if is_module(dotted) and not self.may_stand(node, scope):
                yield "handed on", node.lineno, dotted
        if attribute is None:
            yield "computed names", node.lineno, ast.unparse(node)[:60]
        else:
            for part in attribute.split("."):
                yield from self.attribute(part, node, scope)

    def text(self, node: ast.expr, scope: Scope) -> Found:
        text = self.meanings.text(node, scope)
        if text is None or node in self.docstrings or text.count("\n") > 2:
            return  # a docstring or other prose
        if found := names.INSIDES.search(text):
            yield "insides", node.lineno, found[0]
        if found := SECRET_TEXTS.search(text):
            yield "secrets", node.lineno, found[0]
        if names.SECRET_NAMES.fullmatch(text):
            yield "secrets", node.lineno, text
        if TRUSTING.search(text) or (text == TRUST and not self.is_taken_out(node)):
            yield "foreign code", node.lineno, TRUST
        if names.calls_dangerous(text):
            yield "eval", node.lineno, f"the text {text[:40]!r}, which is code"
        if is_kernel(self.scopes.parent[node]) and ("/" in text or ":" in text):
            yield "foreign code", node.lineno, f"attn_implementation {text[:60]!r}"

    def is_taken_out(self, node: ast.expr) -> bool:
        """Return whether a string is the key in kwargs.pop("...") or config.get("...")."""
        call = self.scopes.parent[node]
        method = getattr(getattr(call, "func", None), "attr", "")
        return isinstance(call, ast.Call) and method in ("pop", "get") and call.args[:1] == [node]


def truth(node: ast.expr | None) -> bool | None:
    """Return the truth of a constant, or None for any other expression."""
    return bool(node.value) if isinstance(node, ast.Constant) else None


def is_kernel(node: ast.AST) -> bool:
    """Return whether an attention implementation is chosen here, perhaps one from the Hub."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    named = [getattr(node, "arg", None), *(getattr(t, "attr", None) for t in targets)]
    named.append(getattr(getattr(node, "func", None), "attr", None))
    return any("attn_implementation" in str(name) for name in named)
