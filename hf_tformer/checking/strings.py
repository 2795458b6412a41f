"""Judge the strings in code: secrets, names of insides, and text that is evaluated as code."""

import ast
import re
import string

from . import names
from .judging import TRUST, Found, Judging, shown
from .names import NOT_UNDERSTOOD, SECRET_TEXTS
from .scopes import Scope

TRUSTING = re.compile(r"(?i)trust_remote_code[\"']\s*:\s*[^\s0fn]")  # in a string of JSON
GENERIC = {f"builtins.{name}" for name in ("list", "dict", "tuple", "set", "frozenset", "type")}
OUTSIDE = re.compile(r"(/|~/)\w[\w.-]*/[\w./-]+")  # a path that leads out of the folder
TYPES = {"typing", "typing_extensions", "collections", "types", "enum", "dataclasses", "torch"}
COMMENT = re.compile(r"#\s*type:(?!\s*ignore\b)\s*(.+)")
CALLS = (ast.Call, ast.Lambda, ast.Await, ast.NamedExpr)
TYPES_OF_JIT = {
    *("Any", "Callable", "Device", "Dict", "Future", "Generator", "Iterator", "List", "NoneType"),
    *("Optional", "Set", "Tensor", "Tuple", "Union", "bool", "complex", "dict", "float", "int"),
    *("list", "number", "set", "str", "torch", "tuple"),
}


class Strings(Judging):
    """Judges strings, and annotations."""

    def text_of(self, node: ast.expr, scope: Scope) -> Found:
        text = None if isinstance(node, ast.Name) else self.texts.text(node, scope)
        parent = self.scopes.parent[node]
        if text is None or isinstance(parent, ast.Expr):
            return  # a docstring
        if text.count("\n") > 2 and isinstance(node, ast.Constant):
            return  # other prose
        if found := names.INSIDES.search(text):
            yield "insides", node.lineno, found[0]
        if found := SECRET_TEXTS.search(text):
            yield "secrets", node.lineno, found[0]
        if OUTSIDE.fullmatch(text):
            yield "file reads", node.lineno, f"the path {text[:60]!r}"
        if names.SECRET_NAMES.fullmatch(text):
            yield "secrets", node.lineno, text
        if TRUSTING.search(text):
            yield "foreign code", node.lineno, TRUST
        if TRUST in text and text.isidentifier() and not self.is_key(node):
            yield NOT_UNDERSTOOD, node.lineno, text
        if names.calls_dangerous(text):
            yield "eval", node.lineno, f"the text {text[:40]!r}, which is code"
        if is_kernel(parent) and ("/" in text or ":" in text):
            yield "foreign code", node.lineno, f"attn_implementation {text[:60]!r}"
        if "{" in text:
            for part in parts_of(text):
                yield from self.attribute(part, node, scope)

    def is_key(self, node: ast.expr) -> bool:
        """Return whether a string is a key whose value is judged, or that is only asked for."""
        parent = self.scopes.parent[node]
        if isinstance(parent, ast.Call):
            name = getattr(parent.func, "attr", getattr(parent.func, "id", ""))
            asked = ("pop", "get", "getattr", "hasattr", "setattr", "delattr", "setdefault")
            return name in asked and node in parent.args[:2]
        return isinstance(parent, ast.Compare | ast.Dict | ast.Subscript)

    def annotation(self, annotation: ast.expr | None, scope: Scope) -> Found:
        """Judge text in an annotation that is not written down: it is code when evaluated."""
        if annotation is None:
            return
        arguments = {
            inner
            for node in ast.walk(annotation)
            if isinstance(node, ast.Subscript) and "Annotated" in shown(node.value)
            for inner in ast.walk(node.slice)
        }
        for node in (n for n in ast.walk(annotation) if isinstance(n, ast.expr)):
            is_text = self.texts.text(node, scope) is not None
            if not isinstance(node, ast.Constant) and is_text:
                yield "eval", node.lineno, f"an annotation of text, {shown(node)}"
            elif node not in arguments and self.may_be_text(node, scope):
                yield NOT_UNDERSTOOD, node.lineno, f"the annotation {shown(node)}"

    def alias(self, node: ast.Subscript, scope: Scope) -> Found:
        """Judge text in a type, wherever it stands: an annotation may name it."""
        owners = self.meanings.of(node.value, scope)
        if not any(name.startswith("typing") or name in GENERIC for name in owners):
            return
        whole = node.slice
        if any(name.endswith(".Annotated") for name in owners) and isinstance(whole, ast.Tuple):
            whole = whole.elts[0]  # the others are no types
        parts = [part for part in ast.walk(whole) if isinstance(part, ast.expr)]
        if any(self.is_text_made(part, scope) for part in parts):
            yield NOT_UNDERSTOOD, node.lineno, f"the type {shown(node)}"

    def may_be_text(self, node: ast.expr, scope: Scope, depth: int = 4) -> bool:
        """Return whether an annotation, or a part of what it names, may be text out of sight."""
        for one, around in self.texts.reach(node, scope):
            if self.is_text_made(one, around):
                return True
            known = self.texts.attributes.get(getattr(one, "attr", ""), ())
            inner = [(part, around) for part in ast.iter_child_nodes(one) if one is not node]
            is_own = isinstance(one, ast.Attribute) and not self.libraries(one, around)
            for part, inside in [*inner, *(known if is_own else ())] if depth else ():
                if isinstance(part, ast.expr) and self.may_be_text(part, inside, depth - 1):
                    return True
        return False

    def is_text_made(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether an expression makes a string: a call, a sum, or a docstring."""
        if isinstance(node, ast.Call):
            tops = {name.split(".")[0] for name in self.meanings.of(node.func, scope)}
            is_own = getattr(node.func, "id", "") in self.own.classes
            return not is_own and not (tops and tops <= TYPES)
        is_sum = isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitOr)
        is_documented = getattr(node, "id", getattr(node, "attr", "")) == "__doc__"
        made = isinstance(node, ast.JoinedStr | ast.Await | ast.Lambda)
        return is_sum or is_documented or made


def parts_of(template: str) -> list[str]:
    """Return the attributes that a template of str.format reads."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field]
    except ValueError:
        return []
    return [part for field in fields for part in re.findall(r"\.(\w+)", field)]


def evaluated_comments(text: str) -> list[tuple[int, str]]:
    """Return (line, code) of the comments that torch.jit.script would evaluate, but for types.

    It evaluates what stands after `# type:`, also in a function that another file gives to it. An
    index calls a method of the class, which may be the folder's own; a comment for mypy is no code.
    """
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        match = COMMENT.search(line)
        for side in match[1].split("->") if match else ():
            try:
                nodes = list(ast.walk(ast.parse(side.split("#")[0].strip(), mode="eval")))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            names = {n.id for n in nodes if isinstance(n, ast.Name)}
            if any(isinstance(n, CALLS) for n in nodes) or names - TYPES_OF_JIT:
                found.append((number, match[1][:40] if match else ""))
    return found


def is_kernel(node: ast.AST) -> bool:
    """Return whether an attention implementation is chosen here, perhaps one from the Hub."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    named = [getattr(node, "arg", None), *(getattr(t, "attr", None) for t in targets)]
    named.append(getattr(getattr(node, "func", None), "attr", None))
    return any("attn_implementation" in str(name) for name in named)
