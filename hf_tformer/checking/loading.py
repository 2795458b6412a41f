"""Judge what a call loads, where it saves, and options that are handed on by `**`."""

import ast
import re
from functools import cached_property

from .by_name import WRITERS
from .judging import FLAGS, TRUST, Found, Judging, shown
from .names import NOT_UNDERSTOOD
from .scopes import Scope

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
ELSEWHERE = re.compile(r"^([/~]|[A-Za-z]:\\)\w|(^|[/\\])\.\.([/\\]|$)")  # outside of a folder
TOKENIZER = re.compile(r"transformers\..*Tokenizer(Fast)?")
LOADING = {"from_config", "from_pretrained", "generate"}
FETCHING = {"cached_file", "cached_files", "get_checkpoint_shard_files"}  # files of a repository
PLACED = {"join", "joinpath", "save_pretrained", "save_vocabulary"}  # methods that take a place


class Loading(Judging):
    """Judges what is loaded and saved, and with which options."""

    def loaded(self, node: ast.Call, method: str, functions: frozenset[str], scope: Scope) -> Found:
        """Judge calls that load a model, a part of one, or code for its attention."""
        if method == "set_attn_implementation":
            for text in (t for value in node.args[:1] for t in self.texts.possible(value, scope)):
                if "/" in text or ":" in text:
                    yield "foreign code", node.lineno, f"attn_implementation {text[:60]!r}"
        if any(TOKENIZER.fullmatch(name) for name in functions) and (node.args or node.keywords):
            yield "file reads", node.lineno, shown(node, 60)
        is_loader = method in ("from_pretrained", "load_adapter")
        if is_loader or any(".from_pretrained" in name for name in functions):
            yield from self.from_pretrained(node, scope)
        fetching = FETCHING & {name.rpartition(".")[2] for name in (method, *functions)}
        named = [k.value for k in node.keywords if k.arg == "path_or_repo_id"]
        for value in [*node.args[:1], *named] if fetching else ():
            for text in filter(None, self.texts.possible(value, scope)):
                yield "network", node.lineno, f"{min(fetching)}({text[:60]!r})"

    def from_pretrained(self, node: ast.Call, scope: Scope) -> Found:
        named = [k.value for k in node.keywords if k.arg == "pretrained_model_name_or_path"]
        first = [self.texts.text(value, scope) for value in [*node.args[:1], *named]]
        inside = (getattr(n, "value", "") for arg in node.args for n in ast.walk(arg))
        texts = [*first, *(t for t in inside if REPOSITORY.fullmatch(str(t)))]
        if name := next(filter(None, texts), None):
            method = getattr(node.func, "attr", "from_pretrained")
            yield "foreign code", node.lineno, f"{method}({name[:60]!r})"
        else:
            yield "downloads", node.lineno, "from_pretrained"

    def placed(self, node: ast.Call, method: str, scope: Scope) -> Found:
        """Judge where something is saved: what is joined to a folder may lead out of it."""
        first = 1 if method == "join" else 0
        for value in [*node.args[first:], *(keyword.value for keyword in node.keywords)]:
            inside = (getattr(n, "value", None) for n in ast.walk(value))
            parts = [text for text in inside if isinstance(text, str) and ".." in text]
            for text in [*self.texts.possible(value, scope), *parts]:
                if ELSEWHERE.search(text):
                    what = f"{method}(… {text[:60]!r}), elsewhere"
                    yield from self.of_kind("file deletions", node, scope, what)

    def options(self, options: ast.expr, node: ast.Call, scope: Scope) -> Found:
        """Judge what is handed by `**`: a key that nobody can read may be one of FLAGS."""
        method = getattr(node.func, "attr", getattr(node.func, "id", ""))
        name = getattr(options, "id", options)
        if name not in self.unread:
            keys = filter(None, self.keys(options, scope))
            self.unread[name] = any(self.may_be_flag(key, scope, True) for key in keys)
        if self.unread[name]:
            yield NOT_UNDERSTOOD, node.lineno, f"**{shown(options)}"
        elif self.takes_flags(node, method, scope) and not (
            isinstance(options, ast.Dict) and None not in options.keys
        ):
            yield from self.switches(options, node, scope)
        if method in LOADING and not self.is_written_down(options, scope):
            yield "computed names", node.lineno, f"**{shown(options)}"

    def takes_flags(self, node: ast.Call, method: str, scope: Scope) -> bool:
        """Return whether a call loads or saves a model, also by another name of the function."""
        asked = [node.func, *(node.func.args if isinstance(node.func, ast.Call) else ())]
        names = {name.rpartition(".")[2] for one in asked for name in self.meanings.of(one, scope)}
        return bool(({method} | names) & (LOADING | WRITERS))

    def switches(self, options: ast.expr, node: ast.Call, scope: Scope) -> Found:
        """Judge options that may come from a JSON file of the folder which names one of FLAGS."""
        for made, _ in self.texts.reach(options, scope):
            is_zipped = called_inside(made) >= {"zip", "dict"}
            if is_zipped or (isinstance(made, ast.DictComp) and not is_shortened(made.key)):
                yield NOT_UNDERSTOOD, node.lineno, f"**{shown(made)}"
        for kind, name in self.told_flags:
            yield kind, node.lineno, f"**{shown(options)}, and a JSON file has {name}"

    @cached_property
    def told_flags(self) -> list[tuple[str, str]]:
        """(kind, name) of each of FLAGS that a JSON file of the folder sets, or names."""
        found = []
        for key, values in self.texts.data.items():
            for name in (key, *values):  # pairs may stand in a list
                named = re.sub(r"\W", "_", name)
                kind, dangerous = FLAGS.get(TRUST if TRUST in named else named, ("", False))
                is_set = name is not key or str(dangerous) in values or key == "custom_generate"
                if kind and is_set:
                    found.append((kind, name))
        return found

    def keys(self, options: ast.expr, scope: Scope) -> list[ast.expr | None]:
        """Return the keys of a dict as they are written, also where it is changed in this file."""
        if isinstance(options, ast.Dict):
            return list(options.keys)
        if not isinstance(options, ast.Name):
            return []
        bound = [(s, v) for s, v in scope.find(options.id) if isinstance(v, ast.Dict)]
        return [*self.stored.get(options.id, ()), *(key for s, v in bound for key in v.keys)]

    def may_be_flag(self, key: ast.expr, scope: Scope, is_handed: bool = False) -> bool:
        if self.texts.text(key, scope) is not None:
            return False
        shape = self.texts.shape(key, scope)
        fits = any(re.fullmatch(shape, flag) for flag in (*FLAGS, f"x_{TRUST}"))
        return (fits and bool(shape.replace(".*", ""))) or (
            is_handed and self.texts.is_made_up(key, scope)
        )

    def is_written_down(self, options: ast.expr, scope: Scope) -> bool:
        """Return whether the names of these options are the caller's, or can be read here."""
        if isinstance(options, ast.Dict):
            return all(not key or self.texts.text(key, scope) for key in options.keys)
        if isinstance(options, ast.Name):
            bound = scope.find(options.id)
            return all(not isinstance(value, (ast.Call, ast.DictComp)) for _, value in bound)
        return isinstance(options, ast.Attribute)


def called_inside(node: ast.expr) -> set[str]:
    """Return the names of the functions that are called in an expression."""
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return {getattr(call.func, "id", "") for call in calls}


def is_shortened(key: ast.expr) -> bool:
    """Return whether a key is a name as it was given, or what is left of it after a prefix."""
    if isinstance(key, ast.Call):
        return getattr(key.func, "attr", "") in ("removeprefix", "removesuffix")
    is_slice = isinstance(key, ast.Subscript) and isinstance(key.slice, ast.Slice)
    return isinstance(key, ast.Name) or (is_slice and not key.slice.step)  # type: ignore[attr-defined]
