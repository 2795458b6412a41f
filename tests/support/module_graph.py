"""The graph of imports between modules; it counts an import wherever in a file it stands."""

import ast
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.paths import ROOT

# The folder that module names start from. The programs of examples/ import each other by name.
HOMES = {"examples": ROOT / "examples"}


def python_files(room: str) -> list[Path]:
    """List the Python files below a folder of the repository, without those of node_modules."""
    found = sorted((ROOT / room).rglob("*.py"))
    return [path for path in found if "node_modules" not in path.parts]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_names(rooms: tuple[str, ...]) -> dict[str, Path]:
    """Map the name that each file is imported by to the file."""
    found = {}
    for room in rooms:
        for path in python_files(room):
            parts = path.relative_to(HOMES.get(room, ROOT)).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports_of(name: str, path: Path) -> dict[str, int]:
    """Map each name that a module imports to the line of the import; `from a import b` is `a.b`."""
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
    """Yield all nodes except those below `if False:`.

    A configuration names its model there. Nothing runs that import: transformers reads the line
    and includes the model's code in the digest of the configuration's code.
    """
    is_dead = isinstance(node, ast.If) and getattr(node.test, "value", None) is False
    for child in node.orelse if is_dead else ast.iter_child_nodes(node):
        yield child
        yield from runnable(child)


def import_graph(rooms: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Map each module to the modules that it imports, with the line of each import.

    `from package import name` is an edge to the submodule `package.name` if there is one, and to
    `package/__init__.py` otherwise. The import of a submodule is no edge to the `__init__.py` above
    it, although Python runs that file: nearly every package would be a circle.
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
    """Return a shortest circle for each group of modules that import each other."""
    reached = {name: reachable(graph, name) for name in graph}
    groups = defaultdict(list)
    for name in graph:
        if name in reached[name]:
            groups[frozenset(n for n in reached[name] if name in reached[n])].append(name)
    return [min((shortest_circle(graph, n) for n in group), key=len) for group in groups.values()]


def reachable(graph: dict[str, dict[str, int]], start: str) -> set[str]:
    """Return all modules that an import of `start` may lead to."""
    found, todo = set(), [start]
    while todo:
        new = graph[todo.pop()].keys() - found
        found |= new
        todo += new
    return found


def shortest_circle(graph: dict[str, dict[str, int]], start: str) -> list[str]:
    """Return the path from a module back to itself that takes the fewest imports."""
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
