"""`tformer check --no-run` warns of hostile code and hostile files, and lets honest ones pass."""

import importlib
import json
import os
import random
import shutil
import socket
import time
import types
from pathlib import Path

import pytest

from hf_tformer.checking import check, names
from hf_tformer.checking.command import main
from hf_tformer.checking.findings import dangers
from hf_tformer.checking.known_names import HARMLESS, LISTED
from support.broken_models import FILE, edit_json, prepend, write_foreign
from support.honest_folders import HONEST
from support.hostile_code import HOSTILE, MORE, TO_BE_READ, UNREADABLE, marked_line
from support.judged_code import found_in, judged, stops

pytestmark = pytest.mark.usefixtures("read_here")

EVERY_HOSTILE = [
    pytest.param(source, id=f"{group}: {source!r}"[:90])
    for group, sources in {**HOSTILE, "more": MORE}.items()
    for source in sources
]


def verdicts(source, **siblings):
    """(verdict, line) of everything that is found in a file."""
    return {(names.KINDS[f.kind][0], f.line) for f in found_in(source, **siblings)}


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
        assert find(check(path, run=False), "safety", "ok") == "no known danger"


def test_code_in_a_folder_of_litter_is_read_where_a_map_leads_to_it(folder):
    place = "__pycache__"
    (folder / place).mkdir()
    (folder / place / "evil.py").write_text("import os\nos.system('/nonexistent')\nclass A: ...\n")
    (folder / place / "evil.cpython-311.pyc").write_bytes(b"")
    edit_json(folder / "config.json", auto_map={"AutoConfig": f"{place}/evil.A"})
    findings = check(folder, run=False)
    assert f"{place}/evil.py:2" in find(findings, "safety")
    assert not find(findings, "files", "warn")


def test_an_adapter_beside_a_model_is_not_loaded_in_its_place_unseen(folder):
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "nobody/nothing"}
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    assert "nobody/nothing" in find(check(folder, run=False), "foreign code")


DANGEROUS = sorted(
    name
    for kind, text in LISTED.items()
    for name in text.split()
    if names.is_dangerous(kind) and "*" not in name and name.count(".") and name[0] != "_"
)
WAYS = {
    "imported under another name": "import {module} as m\nx = m.{leaf}",
    "imported from": "from {module} import {leaf} as x\ny = [x]",
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
    "by getattr of a sum": "import {module} as m\ndef f(a): return getattr(m, a + '{leaf}'[-1])()",
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
        code = WAYS[way].format(**fields)
        found = judged(code, other=other, second="from .other import m as k")
        if not any(stops(one.kind) for one in found):
            missed.append(name)
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


def harmless_modules():
    """The modules below which everything is harmless but what is listed."""
    for kind, text in LISTED.items():
        library = f"{kind.rpartition(' ')[2]}." if kind.startswith("harmless, ") else ""
        for name in text.split() if kind.startswith("harmless") else ():
            if name.endswith(".**") and "*" not in name[:-3]:
                yield (library + name).removesuffix(".**")


@pytest.mark.filterwarnings("ignore")
def test_no_harmless_module_opens_a_door_to_a_dangerous_one():
    """A module may have imported another one under any name: `enum.bltns` is builtins."""
    doors = []
    for module in harmless_modules():
        try:
            inside = vars(importlib.import_module(module))
        except ImportError:
            continue  # a class, or not installed
        for name, value in inside.items():
            if (
                isinstance(value, types.ModuleType)
                and names.kind_of(f"{module}.{name}") == HARMLESS
            ):
                is_renamed = name not in names.ELSEWHERE and names.is_module(value.__name__)
                if is_renamed and not names.is_wholly_harmless(value.__name__):
                    doors.append((f"{module}.{name}", value.__name__))
    assert not doors


@pytest.mark.parametrize("fault", UNREADABLE)
def test_code_that_python_reads_otherwise_than_a_person_fails(fault, folder):
    (folder / "helper.py").write_bytes(UNREADABLE[fault])
    assert "helper.py" in find(check(folder, run=False), "syntax", "warn")
    prepend(folder / FILE, "from .helper import x\n")
    findings = check(folder, run=False)
    assert "helper.py" in find(findings, "syntax")
    assert dangers(findings)


@pytest.mark.parametrize(
    "text", ["x = '\u202e'", "x = 1 # \rimport os", "x = '\x1b[2K'"], ids=ascii
)
def test_characters_that_hide_code_are_named(text, folder):
    prepend(folder / FILE, f"\n{text}\n")
    assert "hidden text: modeling_foreign.py:2" in find(check(folder, run=False), "safety")


def test_code_with_more_meanings_than_can_be_followed_fails():
    turns = "".join(f"    m = m.a{i}\n" for i in range(60))
    assert ("fail", 4) in verdicts(f"import torch\nm = torch\nwhile m:\n{turns}")


EVIL = "import posix\nposix.system('/nonexistent')\n"
CLASS = "evil.Evil"
LOADED = {
    "preprocessor_config.json": {"auto_map": {"AutoImageProcessor": CLASS}},
    "video_preprocessor_config.json": {"auto_map": {"AutoVideoProcessor": CLASS}},
    "generation_config.json": {"auto_map": {"AutoModel": CLASS}},
    "processor_config.json": {"image_processor": {"auto_map": {"AutoImageProcessor": CLASS}}},
    "adapter_config.json": {"auto_map": {"AutoModel": [None, CLASS]}},
    "tokenizer_config.json": {"auto_map": {"AutoTokenizer": [CLASS, None]}},
    "some/other.json": {"auto_map": {"AutoModel": CLASS}},
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": CLASS}],
    "config.json": {"custom_pipelines": {"text": {"impl": CLASS, "pt": ["AutoModel"]}}},
}


@pytest.mark.parametrize("file", LOADED)
def test_code_that_any_file_has_loaded_is_read(file, folder):
    (folder / "evil.py").write_text(f"{EVIL}class Evil: pass\n")
    assert "not reached by loading: evil.py" in find(check(folder, run=False), "syntax", "ok")
    (folder / file).parent.mkdir(exist_ok=True)
    if isinstance(LOADED[file], dict):
        edit_json(folder / file, **LOADED[file])
    else:
        (folder / file).write_text(json.dumps(LOADED[file]))
    assert "evil.py:2 posix.system" in find(check(folder, run=False), "safety")


def test_custom_generate_and_what_it_imports_is_read(folder):
    generate = folder / "custom_generate"
    generate.mkdir()
    (generate / "generate.py").write_text("from .deep import x\ndef generate(model): pass\n")
    (generate / "deep.py").write_text(EVIL)
    (generate / "requirements.txt").write_text("frobnicate")
    findings = check(folder, run=False)
    assert "custom_generate/deep.py:2 posix.system" in find(findings, "safety")
    assert "requirements.txt asks for packages" in find(findings, "absolute imports", "warn")


def test_scripts_beside_the_model_are_read_but_fail_nothing(folder):
    (folder / "train").mkdir()
    (folder / "train" / "train.py").write_text("import subprocess\n")
    findings = check(folder, run=False)
    assert "train/train.py:1 subprocess" in find(findings, "safety", "warn")
    assert not dangers(findings)


def test_a_module_under_another_name_is_followed_from_file_to_file(folder):
    (folder / "helper.py").write_text("import os as tools\n")
    prepend(folder / FILE, "from .helper import tools\ntools.system('/nonexistent')\n")
    assert f"{FILE}:2 os.system" in find(check(folder, run=False), "safety")


def test_what_is_no_regular_file_is_named_and_not_opened(folder):
    os.mkfifo(folder / "pipe.py")
    os.mkfifo(folder / "tokenizer.json")
    os.mkfifo(folder / "model-2.safetensors")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s.json"))
        detail = find(check(folder, run=False), "files")
    for name in ("pipe.py", "tokenizer.json", "model-2.safetensors", "s.json"):
        assert f"{name} is a pipe, a socket or a device" in detail


def test_links_out_of_the_folder_fail_and_those_of_a_snapshot_do_not(sound, tmp_path):
    cache = tmp_path / "models--user--name"
    shutil.copytree(sound, cache / "blobs")
    snapshot = cache / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for path in sorted((cache / "blobs").iterdir()):
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert not dangers(check(snapshot, run=False))
    (snapshot / "secret.py").symlink_to("/etc/passwd")
    (snapshot / "up.json").symlink_to("../../../other.json")
    (snapshot / "loop.json").symlink_to("loop.json")
    (snapshot / "folder").symlink_to("/etc")
    detail = find(check(snapshot, run=False), "files")
    assert "secret.py leads out of the folder" in detail
    assert "folder leads out of the folder" in detail
    assert "up.json leads nowhere" in detail
    assert "loop.json leads nowhere" in detail


DOCUMENTS = {
    "deep": "[" * 100_000,
    "deep but closed": "[" * 100_000 + "]" * 100_000,
    "a long number": '{"a": ' + "1" * 5_000 + "}",
    "twice the same key": '{"auto_map": {}, "auto_map": {"AutoModel": "a.B"}}',
    "no text": b"\xff\xfe",
    "half": '{"a": ',
    "empty": "",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_absurd_json_is_a_finding_or_one_sentence(name, folder, capsys):
    content = DOCUMENTS[name]
    content = content if isinstance(content, bytes) else content.encode()
    for file in ("tokenizer_config.json", "custom.json"):
        (folder / file).write_bytes(content)
    detail = find(check(folder, run=False), "files")
    assert "tokenizer_config.json" in detail
    assert "custom.json" in detail
    (folder / "config.json").write_bytes(content)
    assert main([str(folder), "--no-run"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_enormous_files_are_not_read(folder):
    for name in ("generation_config.json", "large.py"):
        with (folder / name).open("wb") as file:
            file.truncate(1 << 40)
    holes = find(check(folder, run=False), "files")
    assert "generation_config.json is mostly a hole" in holes
    assert "large.py is mostly a hole" in holes
    (folder / "generation_config.json").write_bytes(b" " * ((64 << 20) + 1))
    (folder / "large.py").write_bytes(b" " * ((1 << 20) + 1))
    findings = check(folder, run=False)
    assert "generation_config.json has more than 64 MB" in find(findings, "files")
    assert "large.py: has more than 1 MB" in find(findings, "syntax", "warn")


WRONG = (None, 3, -1.5, True, "", "x", "a.b", "\x00", [], [3], [[]], {}, {"a": 3}, {"a": {"b": []}})
KEYS = {
    "config.json": ("auto_map", "architectures", "model_type", "custom_pipelines", "eos_token_id"),
    "tokenizer_config.json": ("auto_map", "tokenizer_class", "eos_token", "added_tokens_decoder"),
    "tokenizer.json": ("added_tokens", "model"),
    "model.safetensors.index.json": ("weight_map", "metadata"),
    "adapter_config.json": ("auto_mapping", "auto_map"),
    "generation_config.json": ("auto_map", "eos_token_id"),
}


@pytest.mark.parametrize("file", KEYS)
def test_values_of_every_wrong_type_are_judged(file, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "x"}')
    (tmp_path / "x.py").touch()
    for value in WRONG:
        contents = [{key: v} for key in KEYS[file] for v in (value, [value], {"AutoModel": value})]
        for content in contents if file == "config.json" else [value, *contents]:
            (tmp_path / file).write_text(json.dumps(content))
            details = [finding.detail for finding in check(tmp_path, run=False)]
            assert not [d for d in details if "cannot be judged" in d], content


def test_many_files_of_code_are_read_up_to_a_limit(folder):
    for i in range(12):
        (folder / f"f{i:02}.py").write_bytes(b"#" * (1 << 20))
    detail = find(check(folder, run=False), "syntax", "warn")
    assert "f00.py" not in detail
    assert "f11.py: was not read: with others it has more than 8 MB" in detail


SLOW = {
    "bound again and again": "import os\n" + "x = x\n" * 10_000,
    "bound to each other": "".join(f"x{i} = x{i + 1} or x{i + 2}\n" for i in range(2_000)),
    "many lines that hide": "# \x1b\n" * 20_000,
    "many imports": "from .a import b\n" * 4_000,
    "many methods that are set": "class A: pass\n" + "A.forward = A\n" * 10_000,
    "text that doubles": "x0 = 'x' * 9\n" + "".join(f"x{i + 1} = x{i} + x{i}\n" for i in range(99)),
}


@pytest.mark.parametrize("name", SLOW)
def test_code_that_is_made_to_be_slow_is_read_in_seconds(name, folder):
    prepend(folder / FILE, SLOW[name])
    start = time.process_time()
    check(folder, run=False)
    assert time.process_time() - start < 15


def test_files_that_star_import_each_other_are_read(folder):
    names = [f"f{i}" for i in range(15)]
    for name in names:
        others = "".join(f"from .{other} import *\n" for other in names if other != name)
        (folder / f"{name}.py").write_text(f"{others}x = nowhere\n")
    (folder / "f7.py").write_text("import os as nowhere\n")
    prepend(folder / FILE, "from .f0 import nowhere\nnowhere.system('/nonexistent')\n")
    assert f"{FILE}:2 os.system" in find(check(folder, run=False), "safety")


def test_folders_in_folders_without_end_are_named(folder):
    (folder / Path(*["a"] * 300)).mkdir(parents=True)
    assert "is too deep" in find(check(folder, run=False), "files")


def test_names_and_values_of_a_folder_forge_no_lines(folder, capsys):
    forged = "x\nok    safety  \x1b[2Knothing\u202e\u200b\r"
    (folder / f"{forged}.py").write_text("import os")
    (folder / f"{forged}.bin").write_text("")
    auto_map = {"AutoConfig": f"{forged}.A", forged: f"b.{forged}", "AutoModel": f"{forged}--a.B"}
    edit_json(folder / "config.json", auto_map=auto_map, attn_implementation=f"{forged}/x")
    (folder / "other.json").write_text(forged)
    assert main([str(folder), "--no-run"]) == 3
    printed = capsys.readouterr().out
    assert all(character.isprintable() for line in printed.splitlines() for character in line)
    starts = [line.split()[:2] for line in printed.splitlines()]
    assert ["ok", "safety"] not in starts or "no known danger" in printed
    assert not [line for line in printed.splitlines() if line.startswith("ok    safety  \\x1b")]
    main([str(folder), "--no-run", "--json"])
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("reference", ["os.system", "gone.deep.Class", "torch.nn.Linear"])
def test_modules_of_a_sentence_model_that_are_not_here_are_named(reference, folder):
    (folder / "modules.json").write_text(json.dumps([{"type": reference}]))
    assert reference in find(check(folder, run=False), "foreign code")


def test_a_library_that_an_adapter_has_imported_is_named(folder):
    edit_json(folder / "adapter_config.json", auto_mapping={"parent_library": "os"})
    assert "parent_library" in find(check(folder, run=False), "foreign code")
