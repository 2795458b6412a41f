"""The graph of imports between modules, wherever in a file an import stands."""

import ast
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.paths import ROOT

# Where a package's modules have their first name: the programs of examples/ import each other by
# name.
HOMES = {"examples": ROOT / "examples"}


def python_files(room: str) -> list[Path]:
    """Every Python file below a folder of the repository, but for what npm has put there."""
    found = sorted((ROOT / room).rglob("*.py"))
    return [path for path in found if "node_modules" not in path.parts]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_names(rooms: tuple[str, ...]) -> dict[str, Path]:
    """The name that each file is imported by."""
    found = {}
    for room in rooms:
        for path in python_files(room):
            parts = path.relative_to(HOMES.get(room, ROOT)).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports_of(name: str, path: Path) -> dict[str, int]:
    """Each name that a module may import, with the line; of `from a import b`, `a` and `a.b`."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    found = {}
    for node in runnable(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name: node.lineno for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            found |= {f"{base}.{alias.name}": node.lineno for alias in node.names}
    return found


def runnable(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below `if False:`.

    A configuration names its model there and nowhere else: nothing imports it, transformers alone
    reads the line and counts the model's code into the digest of the configuration's.
    """
    is_dead = isinstance(node, ast.If) and getattr(node.test, "value", None) is False
    for child in node.orelse if is_dead else ast.iter_child_nodes(node):
        yield child
        yield from runnable(child)


def import_graph(rooms: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Module → the modules that it imports, each with the line of the import.

    `from package import name` leads to the submodule `package.name` where there is one, and to
    `package/__init__.py` where there is none. That the import of a submodule runs the `__init__.py`
    above it is no edge: nearly every package would be a circle.
    """
    modules = module_names(rooms)
    graph = {}
    for name, path in modules.items():
        graph[name] = {}
        for imported, line in imports_of(name, path).items():
            target = imported if imported in modules else imported.rpartition(".")[0]
            if target in modules:
                graph[name].setdefault(target, line)
    return graph


def circles(graph: dict[str, dict[str, int]]) -> list[list[str]]:
    """One shortest circle through each group of modules that import each other."""
    reached = {name: reachable(graph, name) for name in graph}
    groups = defaultdict(list)
    for name in graph:
        if name in reached[name]:
            groups[frozenset(n for n in reached[name] if name in reached[n])].append(name)
    return [min((shortest_circle(graph, n) for n in group), key=len) for group in groups.values()]


def reachable(graph: dict[str, dict[str, int]], start: str) -> set[str]:
    found, todo = set(), [start]
    while todo:
        new = graph[todo.pop()].keys() - found
        found |= new
        todo += new
    return found


def shortest_circle(graph: dict[str, dict[str, int]], start: str) -> list[str]:
    """A path from a module back to itself, by the fewest imports."""
    before, todo = {}, deque([start])
    while start not in before:
        name = todo.popleft()
        for target in graph[name].keys() - before.keys():
            before[target] = name
            todo.append(target)
    path = [start, before[start]]
    while path[-1] != start:
        path.append(before[path[-1]])
    return path[::-1]
