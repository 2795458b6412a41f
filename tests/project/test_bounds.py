"""Bounds on the code: its size, the length of files and functions, type hints, import circles.

All numbers are at the top. The code follows them; raising one is a decision, not a repair.
"""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from support.module_graph import circles, import_graph, parsed, python_files
from support.pages import PAGES
from support.paths import ROOT

# The most lines of code in a saved folder, in all its files together, and the most files.
SAVED_LINES = {"decoder": 1_700, "seq2seq": 1_900, "encoder": 1_800, "mixture": 2_250}
SAVED_FILES = 13
# The most lines of a file and of a function, in these folders.
FILE_LINES = 350
FUNCTION_LINES = 45
SHORT = ("hf_tformer", "conversion")
# Folders in which every parameter and every result has a type hint.
ANNOTATED = (
    *("hf_tformer/model", "hf_tformer/fast", "hf_tformer/testing"),
    *("hf_tformer/scale", "hf_tformer/plan", "conversion"),
)
# Folders in which no modules import each other in a circle.
WITHOUT_CIRCLES = ("hf_tformer", "conversion", "benchmarks", "examples")
# The product has fewer lines of Python than this, in all these folders together. It was 38,721, of
# which 37,999 were needed; conversion then learnt the heads of decoders, the files of other
# programs and to read GGUF, fast/ the layers of other architectures, benchmarks/ to load the
# machine, checking/ to run nothing without walls, to follow names into libraries, strings, JSON
# files, and every place that hands an object on, to read in a process of its own, to see what is
# changed for all models, to say what a verdict is worth and to serve pipelines, and the commands to
# refuse what cannot generate or is missing, and to describe the environment in a report. tools/
# builds releases and runs every verb. conversion/proving/ asks anybody's file. Seventeen formats
# took 30 lines each, six more 60. The mixture of experts is a family of its own, with ten formats.
# tools/ sets the formulas, notebooks and pictures of the book; its GPT is an example.
# The layouts of training programs each need a reference that computes what they compute.
# conversion/rehoming/ moves folders with code of others, of which 400 lines are tables. checking/
# asks models of images and waves too, in their own dtype, and as generate() and trainers do.
# benchmarks/ trains other sizes and families, and says which of its figures still stand. llama.cpp
# packs what was proven. benchmarks/ runs released weights beside what people would run instead.
# GGUF files of BERT and T5 are read, with the tokenizers of both kinds: 150 lines.
PRODUCT_LINES = 54_040
PRODUCT = ("hf_tformer", "conversion", "benchmarks", "examples", "tools")


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """List all functions of a file, with methods and functions within functions."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(parsed(path)) if isinstance(node, kinds)]


def place_of(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def listed(offenders: dict[str, object]) -> str:
    """Write one offender on each line, with its figure, the largest first."""
    ordered = sorted(offenders.items(), key=lambda item: item[1], reverse=True)
    return "\n".join(["", *(f"{figure:>8,}  {name}" for name, figure in ordered)])


# A saved folder


def test_a_saved_folder_can_be_read_in_an_hour(family, tmp_path):
    family.build().save_pretrained(tmp_path)
    lines = {path.name: lines_of(path) for path in tmp_path.glob("*.py")}
    total, most = sum(lines.values()), SAVED_LINES[family.name]
    figures = f"{total:,} lines of {most:,}, {len(lines)} files of {SAVED_FILES}{listed(lines)}"
    assert 0 < total <= most, figures
    assert len(lines) <= SAVED_FILES, figures


UNITS = ("(?:lines )?for an?", "行")


@pytest.mark.parametrize(("page", "unit"), list(zip(PAGES, UNITS, strict=True)))
def test_both_readmes_say_how_much_code_travels(page, unit):
    text = (ROOT / page).read_text(encoding="utf-8")
    said = [int(n.replace(",", "")) for n in re.findall(rf"(\d,\d{{3}}) {unit}", text)]
    assert said == list(SAVED_LINES.values())


# Files and functions


def test_files_are_short():
    lengths = {path: lines_of(path) for room in SHORT for path in python_files(room)}
    long = {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > FILE_LINES}
    assert not long, f"{len(long)} files have more than {FILE_LINES} lines:{listed(long)}"


def test_functions_fit_a_screen():
    long = {}
    for path in (path for room in SHORT for path in python_files(room)):
        for node in functions_of(path):
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES:
                long[place_of(path, node)] = length
    assert not long, f"{len(long)} functions have more than {FUNCTION_LINES} lines:{listed(long)}"


def test_the_product_does_not_grow():
    lines = {room: sum(map(lines_of, python_files(room))) for room in PRODUCT}
    total = sum(lines.values())
    assert total < PRODUCT_LINES, f"{total:,} lines, not below {PRODUCT_LINES:,}:{listed(lines)}"


# Hints


def without_hint(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Name the parameters without a hint, and `return` unless this is an `__init__`."""
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    bare = [argument.arg for argument in named if argument and not argument.annotation]
    missing = [name for name in bare if name not in ("self", "cls")]
    return missing + ["return"] * (node.returns is None and node.name != "__init__")


@pytest.mark.parametrize("room", ANNOTATED)
def test_every_function_is_fully_annotated(room):
    functions = [(path, node) for path in python_files(room) for node in functions_of(path)]
    bare = {
        place_of(*one): ", ".join(missing) for one in functions if (missing := without_hint(one[1]))
    }
    share = 1 - len(bare) / len(functions)
    lacking = "".join(f"\n{place}: {missing}" for place, missing in bare.items())
    assert not bare, f"{room}: {share:.0%} of {len(functions)} functions are annotated{lacking}"


# Imports


def test_no_modules_import_each_other_in_a_circle():
    """Imports count at the top of a file, within functions and under TYPE_CHECKING alike."""
    graph = import_graph(WITHOUT_CIRCLES)
    assert len(graph) > 100
    found = circles(graph)
    steps = [[f"{a}:{graph[a][b]}" for a, b in pairwise(c)] for c in found]
    shown = "".join(f"\n{' → '.join([*path, path[0].split(':')[0]])}" for path in steps)
    assert not found, f"{len(found)} circles:{shown}"


# The tests of the tests


def test_a_circle_is_found_wherever_its_imports_stand(tmp_path, monkeypatch):
    monkeypatch.setattr("support.module_graph.ROOT", tmp_path)
    (tmp_path / "house" / "room").mkdir(parents=True)
    files = {
        "house/__init__.py": "from .door import open",
        "house/door.py": "def open():\n    from house.room import bed",
        "house/room/__init__.py": "from typing import TYPE_CHECKING",
        "house/room/bed.py": "if TYPE_CHECKING:\n    from ..wall import height",
        "house/wall.py": "from . import window",
        "house/window.py": "import house.room.bed",
        "house/roof.py": "if False:\n    from .wall import height\nfrom house import door",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (circle,) = circles(import_graph(("house",)))
    assert circle[0] == circle[-1]
    assert set(circle) == {"house.room.bed", "house.wall", "house.window"}


def test_a_missing_hint_is_named():
    code = "def f(self, a, /, b: int, *c, d=1, **e: int): ...\ndef __init__(self, x: int): ..."
    f, init = ast.parse(code).body
    assert without_hint(f) == ["a", "d", "c", "return"]
    assert without_hint(init) == []
