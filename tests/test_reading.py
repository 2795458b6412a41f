"""`tformer check --no-run` warns of hostile code and hostile files, and lets honest ones pass."""

import ast
import json
import os
import random
import shutil
import socket
from pathlib import Path

import pytest
from broken_models import FILE, FOREIGN, edit_json, prepend, write_foreign
from honest_folders import HONEST
from hostile_code import HOSTILE, MORE, TO_BE_READ, UNREADABLE, marked_line

from hf_tformer.check import check, names
from hf_tformer.check.command import main
from hf_tformer.check.judging import references
from hf_tformer.check.known_names import HARMLESS, LISTED
from hf_tformer.check.reading import dangers

EVERY_HOSTILE = [
    pytest.param(source, id=f"{group}: {source!r}"[:90])
    for group, sources in {**HOSTILE, "more": MORE}.items()
    for source in sources
]


def verdicts(source, **siblings):
    """(verdict, line) of everything that is found in a file."""
    trees = {f"{name}.py": ast.parse(text) for name, text in siblings.items()}
    found = references({"main.py": ast.parse(source), **trees})
    return {(names.KINDS[f.kind][0], f.line) for f in found if f.file == "main.py"}


def find(findings, name, verdict="fail"):
    return "\n".join(f.detail for f in findings if (f.name, f.verdict) == (name, verdict))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write_foreign(tmp_path_factory.mktemp("sound") / "sound")


@pytest.fixture
def folder(sound, tmp_path):
    return Path(shutil.copytree(sound, tmp_path / "folder"))


@pytest.mark.parametrize("source", EVERY_HOSTILE)
def test_hostile_code_fails_at_its_line(source):
    assert ("fail", marked_line(source)) in verdicts(source)


@pytest.mark.parametrize("source", TO_BE_READ, ids=lambda source: repr(source)[:90])
def test_what_honest_code_does_too_is_left_to_a_person(source):
    found = verdicts(source)
    assert ("warn", marked_line(source)) in found
    assert {verdict for verdict, _ in found} == {"warn"}


@pytest.mark.parametrize("name", HONEST)
def test_honest_code_does_not_fail(name, folder):
    for file, text in HONEST[name].items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    # All of it is loaded.
    imports = [f"from .{Path(f).stem} import x\n" for f in HONEST[name] if f.count(".py")]
    prepend(folder / FILE, "".join(i for i in imports if "generate" not in i and "helper" not in i))
    findings = check(folder, run=False)
    assert not dangers(findings)
    assert not find(findings, "syntax", "warn")
    assert "not reached" not in find(findings, "syntax", "ok")


def test_a_sound_model_and_both_families_leave_nothing_to_be_read(sound, family, tmp_path):
    family.build().save_pretrained(tmp_path)
    for path in (sound, tmp_path):
        assert find(check(path, run=False), "safety", "ok") == "nothing found in plain sight"


DANGEROUS = sorted(
    name
    for kind, text in LISTED.items()
    for name in text.split()
    if names.is_dangerous(kind) and "*" not in name and name.count(".") and name[0] != "_"
)
WAYS = {
    "imported under another name": "import {module} as m\nx = m.{leaf}",
    "imported from": "from {module} import {leaf} as x",
    "in a function": "import {module} as m\ndef f(n):\n    return m.{leaf}(n)",
    "in a default": "import {module} as m\ndef f(n=m.{leaf}): pass",
    "in a decorator": "import {module} as m\n@m.{leaf}\ndef f(): pass",
    "in a class": "import {module} as m\nclass A:\n    x = m.{leaf}",
    "as a base class": "import {module} as m\nclass A(m.{leaf}): pass",
    "in a comprehension": "import {module} as m\nx = [f for f in [m.{leaf}] if f]",
    "in a match": "import {module} as m\nmatch 1:\n    case m.{leaf}: pass",
    "in a lambda": "import {module} as m\nf = lambda: m.{leaf}",
    "in a text": "import {module} as m\nx = f'{{m.{leaf}()}}'",
    "in an annotation": "import {module} as m\nx: 'm.{leaf}(1)'",
    "by a walrus": "import {module} as m\nif (n := m).{leaf}: pass",
    "by assignments": "import {module} as m\na = b = m\nc, d = a, b\nx = d.{leaf}",
    "by getattr": "import {module} as m\nx = getattr(m, '{leaf}')",
    "by getattr under another name": "import {module} as m\ng = getattr\nx = g(m, '{leaf}')",
    "by getattr of a sum": "import {module} as m\na = '{leaf}'[:1]\nx = getattr(m, a + 'b')",
    "by an inner function": "def f():\n    import {module} as m\n    return lambda: m.{leaf}",
    "by a global name": "def f():\n    global m\n    import {module} as m\ndef g(): m.{leaf}",
    "by an argument": "import {module} as m\ndef f(n): n.{leaf}\nf(m)",
    "below torch": "import torch\nx = torch.nn.{name}",
    "below transformers": "from transformers.models.llama import {top}\nx = {name}",
    "starred": "from {module} import *\nx = {leaf}",
    "out of a file": "from .other import m\nx = m.{leaf}",
    "out of a file with all": "from .other import *\nx = m.{leaf}",
    "out of a whole file": "from . import other\nx = other.m.{leaf}",
    "out of two files": "from .second import k\nx = k.{leaf}",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_dangerous_name_is_harmless_however_it_is_reached(way):
    missed = []
    for name in DANGEROUS:
        module, _, leaf = name.rpartition(".")
        if way.startswith("below") and name.split(".")[0] not in names.ELSEWHERE - {"builtins"}:
            continue
        fields = {"module": module, "leaf": leaf, "name": name, "top": name.split(".")[0]}
        other = f"import {module} as m"
        found = verdicts(
            WAYS[way].format(**fields), other=other, second="from .other import m as k"
        )
        if "fail" not in {verdict for verdict, _ in found}:
            missed.append((name, found))
    assert not missed


def test_dangerous_names_are_found_in_random_nests():
    chooser = random.Random(0)
    nests = (
        "def f{i}(a=None):\n{}",
        "class C{i}:\n{}",
        "if True:\n{}",
        "for i{i} in ():\n{}",
        "try:\n{}\nexcept Exception:\n    pass",
        "with a as b{i}:\n{}",
        "async def g{i}():\n{}",
        "while a:\n{}",
        "match a:\n    case [x{i}]:\n{}",
    )
    uses = ("{x}()", "y = {x}", "y = [{x}]", "y(k={x})", "lambda: {x}", "{{1: {x}}}", "y[{x}]")
    for _ in range(300):
        name = chooser.choice(DANGEROUS)
        module, _, leaf = name.rpartition(".")
        code = chooser.choice(uses).format(x=f"m.{leaf}")
        for i in range(chooser.randint(1, 5)):
            nest = chooser.choice(nests)
            width = "        " if "case" in nest else "    "
            inner = "\n".join(width + line for line in code.splitlines())
            code = nest.replace("{i}", str(i)).replace("{}", inner)
        code = f"import {module} as m\n{code}"
        assert "fail" in {verdict for verdict, _ in verdicts(code)}, code
