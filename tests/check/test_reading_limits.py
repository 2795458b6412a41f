"""Reading 10 KB of code ends within 5 seconds, whatever the code is."""

import ast
import contextlib
import time

import pytest

from hf_tformer.checking.definitions import module_file
from hf_tformer.checking.references import references
from hf_tformer.checking.source_code import is_deep
from hf_tformer.checking.texts import TooEntangledError

SIZE, SECONDS = 10_000, 5


def filled(line, size=SIZE):
    lines, length = [], 0
    while length < size:
        lines.append(line.format(i=len(lines), j=len(lines) + 1, k=len(lines) % 9))
        length += len(lines[-1])
    return "".join(lines)


def nested(start, end, inside, levels, size=SIZE):
    line = f"x = {start * levels}{inside}{end * levels}\n"
    return line * max(1, size // len(line))


MODELS = sorted(path.name for path in module_file("transformers").parent.glob("models/*/"))
WAYS = "".join(f"n{i} = n{i + 1} or n{i + 2} or n{i + 3}\n" for i in range(60))
ENTANGLED = {
    "texts in texts": "x = f'''{f\"\"\"{f'{f\"{1}\"}'}\"\"\"}'''\n" * 250,
    "annotations of texts": filled("a{i}: f'{{b}}{{c}}{{d}}'\n"),
    "one wide text": "x: f'" + "{a}" * 3_000 + "'\n",
    "sums": nested("'a' + ", "", "b", 150),
    "joins": nested("''.join([", "])", "'a'", 60),
    "texts that grow": "x = 'aaaaaaaaaa'" + ".replace('a', 'aaaaaaaaaa')" * 60,
    "large numbers": "x = 9 ** 9 ** 9\ny = [9] * 10 ** 9\nz = 'a' * 10 ** 9\n" * 100,
    "long attributes": "import torch\nm = torch\n" + filled("m = m" + ".a" * 150 + "\n"),
    "names in a circle": "import torch\na0 = torch\n" + filled("a{j} = a{i}.b\na{i} = a{j}\n"),
    "one name again and again": "import torch\n" + filled("x = x.a or torch.b{i}\n"),
    "many ways": WAYS + filled("getattr(o{i}, n0)\n", 8_000),
    "few names, many bindings": filled("a{k} = a{i}\n", 5_000) + filled("x{i}: a{k}\n", 5_000),
    "many keys": "k = {}\n" + filled("k[a{k} + b] = 1\n", 5_000) + filled("f(**k)\n", 5_000),
    "all names of many modules": filled("from torch.m{i} import *\n", 5_000)
    + filled("n{i}\n", 5_000),
    "all names of itself": filled("from .main import *\n", 5_000) + filled("n{i}\n", 5_000),
    "many modules": filled("import transformers.models.m{i}.modeling_m{i} as a{i}\na{i}.b\n"),
    "all models": "".join(
        f"from transformers.models.{name}.modeling_{name} import os as o{i}\n"
        for i, name in enumerate(MODELS)
    )[:SIZE].rpartition("\n")[0],
    "calls in calls": nested("f(", ")", "a", 150),
    "getattr in getattr": nested("getattr(", ", 'a')", "o", 70),
    "types in types": nested("A[", "]", "int", 150).replace("x = ", "x: "),
    "functions that hand on names": filled("def f{j}(o, n): return f{i}(o, n)\n")
    + "def f0(o, n): return getattr(o, n)\n",
    "a large table": "T = {"
    + filled("'a{i}': 'b{i}', ", 5_000)
    + "}\n"
    + "getattr(o, T[k])\n" * 300,
}


@pytest.mark.parametrize("name", ENTANGLED)
def test_reading_ends(name):
    tree = ast.parse(ENTANGLED[name])
    if is_deep(tree):
        pytest.fail("such a file is not read at all: make the form less deep")
    start = time.process_time()
    with contextlib.suppress(TooEntangledError, RecursionError):  # check_safety makes them failures
        list(references({"main.py": tree}))
    assert time.process_time() - start < SECONDS


def test_honest_code_is_not_entangled():
    """A file of 200 classes with a dozen names each is far from the limit."""
    lines = ["import torch", "from torch import nn"]
    for i in range(200):
        lines += [f"class A{i}(nn.Module):", "    def forward(self, x):"]
        lines += [f"        y{j} = torch.relu(x) + self.w{j}" for j in range(12)]
    assert not list(references({"main.py": ast.parse("\n".join(lines))}))
