"""What code reads from the folder's JSON files is read with it: names, options and places.

Code that is harmless with one configuration is dangerous with another, and the folder brings both.
"""

import json

import pytest

from hf_tformer.checking.command import main
from hf_tformer.checking.folder import opened
from hf_tformer.checking.reading import static_findings
from support.judged_code import found_in, stops

BEFORE = """
import os
import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoModel
"""
KEYS = """
class Layer(nn.Module):
    def __init__(self, config, reduction="mean"):
        super().__init__()
        self.first = config.first
        self.second = config["second"]
        self.reduction = reduction
        self.third = getattr(config, "third")
"""
IMPORTS = {"first": ["importlib"], "second": ["import_module"], "third": ["system"]}
STOPS = {
    "attribute of an attribute": (
        "def f(config, x): return getattr(getattr(F, config.first), config.second)(x)",
        IMPORTS,
    ),
    "by way of attributes": (
        KEYS + "    def f(self): return getattr(getattr(F, self.first), self.second)('os')",
        IMPORTS,
    ),
    "an item": ("def f(config): return getattr(torch, config['first'])", {"first": ["os"]}),
    "of get": ("def f(config): getattr(torch, config.get('first'))", {"first": ["hub"]}),
    "a method that saves": (
        "class A:\n    def f(self, config): getattr(self, config.first)(config.second)",
        {"first": ["save_pretrained"], "second": ["notes"]},
    ),
    "a default": ("def f(name='hub'): return getattr(torch, name)", {}),
    "a default of an attribute": (
        "class A:\n    def __init__(self, name='save_pretrained'): self.name = name\n"
        "    def f(self, x): return getattr(self, self.name)(x)",
        {},
    ),
    "one of many": ("def f(config): return getattr(torch, config.first)", {"first": ["abs", "os"]}),
    "a file writer": (
        "def f(config): return getattr(torch, config.first)(config.second)",
        {"first": ["PyTorchFileWriter"]},
    ),
    "given to a class of its own": (
        KEYS + "    def f(self, x): return getattr(torch, self.reduction)(x)\n"
        "def hidden(): return chr(3)\nLayer({}, reduction=hidden())",
        {},
    ),
    "given to the class above": (
        KEYS + "    def f(self, x): return getattr(torch, self.reduction)(x)\n"
        "class B(Layer):\n    def __init__(self, c): super().__init__(c, bytes(c.n).decode())",
        {},
    ),
    "options of generate": (
        "def f(model, config): model.generate(**config.decoding)",
        {"trust_remote_code": ["True"]},
    ),
    "options with another spelling": (
        "def f(model, options): model.generate(**{k.replace('-', '_'): v for k, v in options})",
        {},
    ),
    "zipped options": (
        "def f(config): AutoModel.from_pretrained(config.at, **dict(zip(config.names, [True])))",
        {},
    ),
    "options of a save": (
        "class A:\n    def save_pretrained(self, where, **kwargs):\n"
        "        kwargs.update(self.config.saving)\n"
        "        super().save_pretrained(where, **kwargs)",
        {"push_to_hub": ["True"]},
    ),
    "a kernel": (
        "def f(self): self.set_attn_implementation(self.config.first)",
        {"first": ["someone/kernel"]},
    ),
    "a place elsewhere": (
        "class A:\n    def save_vocabulary(self, folder):\n"
        "        return open(os.path.join(folder, self.config.first), 'w')",
        {"first": ["/home/someone/.bashrc"]},
    ),
    "a written place elsewhere": (
        "class A:\n    def save_pretrained(self, where): super().save_pretrained('/srv/copy')",
        {},
    ),
    "a place above": (
        "class A:\n    def save_vocabulary(self, folder):\n"
        "        return open(os.path.join(folder, '..', 'x.json'), 'w')",
        {},
    ),
    "an adapter": ("def f(model): model.load_adapter('someone/adapter')", {}),
    "the loader of weights": (
        "class A:\n    def _load_pretrained_model(self, model, *args): pass",
        {},
    ),
    "one of two is plain": (
        "def f(text, x, ok):\n    value = 'a' if ok else x\n    return text.format(config=value)\n"
        "class A:\n    def g(self, text, ok): return text.format('a' if ok else self)",
        {},
    ),
}
HONEST = {
    "a kind of numbers": (
        "def f(config): return getattr(torch, config.first)",
        {"first": ["float32"]},
    ),
    "an activation": ("def f(config, x): return getattr(F, config.act)(x)", {"act": ["gelu"]}),
    "a reduction": (KEYS + "    def f(self, x): return getattr(torch, self.reduction)(x)", {}),
    "a reduction of the configuration": (
        "def f(config, x): return getattr(torch, config.first)(x)",
        {"first": ["sum"]},
    ),
    "a method of its own": (
        "class A:\n    def run(self, x): return x\n"
        "    def f(self, config, x): return getattr(self, config.first)(x)",
        {"first": ["run"]},
    ),
    "options for a prompt": (
        "def f(model, inputs, config): model.generate(**inputs, **config.decoding)",
        {"do_sample": ["True"]},
    ),
    "options after a prefix": (
        "def f(at, options): AutoModel.from_pretrained(at, "
        "**{k[len('encoder_'):]: v for k, v in options.items()})",
        {},
    ),
    "a place in the folder": (
        "class A:\n    def save_vocabulary(self, folder, prefix=None):\n"
        "        path = os.path.join(folder, (prefix + '-' if prefix else '') + 'vocab.json')\n"
        "        text = 'a/b'.split('/')\n        return open(path, 'w')",
        {"first": ["/home/someone"]},
    ),
    "functions of tensors": ("x = torch.greater(torch.lgamma(y), torch.logcumsumexp(y, 0))", {}),
    "a tokenizer": (
        "from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast\n"
        "class A(PreTrainedTokenizer): pass\nclass B(PreTrainedTokenizerFast): pass",
        {},
    ),
    "an attention of its own": (
        "from transformers import AttentionInterface\n"
        "from transformers.integrations.sdpa_attention import sdpa_attention_forward\n"
        "def mine(*args, **kwargs): return sdpa_attention_forward(*args, **kwargs)\n"
        "AttentionInterface.register('attention_of_mine', mine)",
        {},
    ),
}
TOLD = {  # code → the kind that says what the harm is
    "import atexit\natexit.register(print)": "insides",
    "import unittest.mock\nunittest.mock.patch('torch.relu')": "tampering",
    "import sqlite3\nsqlite3.connect('x')": "file writes",
    "torch.hub.load('x', 'y', source='local')": "foreign code",
    "torch.distributed.FileStore('x')": "file writes",
    "torch.PyTorchFileWriter('x')": "file writes",
}


@pytest.mark.parametrize("form", STOPS)
def test_what_a_json_file_makes_dangerous_is_not_run(form):
    code, data = STOPS[form]
    assert any(stops(found.kind) for found in found_in(BEFORE + code, data))


@pytest.mark.parametrize("form", HONEST)
def test_what_a_json_file_leaves_harmless_is_run(form):
    code, data = HONEST[form]
    kinds = {found.kind for found in found_in(BEFORE + code, data)}
    assert not {kind for kind in kinds if stops(kind) or kind in ("unknown", "global flags")}


@pytest.mark.parametrize("code", TOLD)
def test_the_kind_says_what_the_harm_is(code):
    assert TOLD[code] in {found.kind for found in found_in(BEFORE + code)}


def test_a_class_that_is_made_a_dataclass_is_named_as_the_code_has_it():
    code = "from dataclasses import dataclass\ndataclass(nn.LayerNorm)"
    told = [found.what for found in found_in(BEFORE + code) if found.kind == "tampering"]
    assert told == ["dataclass(nn.LayerNorm), which changes torch.nn.LayerNorm"]


def write(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_py", ".py").replace("_json", ".json")).write_text(text)


def details(folder, verdict):
    return [f.detail for f in static_findings(opened(folder)) if f.verdict == verdict]


def test_names_are_taken_from_every_json_file_at_any_depth(tmp_path):
    code = "import torch\ndef f(config): return getattr(torch, config.extra.name)"
    auto_map = {"AutoConfig": "code.f", "AutoModel": "code.f"}
    config = json.dumps({"auto_map": auto_map, "parts": [{"extra": {"name": "float32"}}]})
    write(tmp_path, code_py=code, config_json=config)
    assert not any("torch.hub" in detail for detail in details(tmp_path, "fail"))
    write(tmp_path, preprocessor_config_json='{"a": [{"name": "hub"}]}')
    assert any("torch.hub" in detail for detail in details(tmp_path, "fail"))


@pytest.mark.parametrize(("name", "verdict"), [("processing_a", "warn"), ("modeling_a", "fail")])
def test_an_image_processor_may_need_what_those_of_transformers_need(name, verdict, tmp_path):
    auto_map = json.dumps({"auto_map": {"AutoProcessor": f"{name}.A"}})
    write(tmp_path, **{f"{name}_py": "from PIL import Image\nclass A: pass"}, config_json=auto_map)
    assert any("PIL (the package pillow) " in d for d in details(tmp_path, verdict))


def test_what_an_editor_left_is_a_warning_and_the_same_elsewhere_a_fault(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for folder in (".vscode", ".other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "launch.json").write_text('{ // with a comment\n "a": 1 }')
    found = {f.detail.split()[0]: f.verdict for f in static_findings(opened(tmp_path))}
    assert found[".vscode/launch.json"] == "warn"
    assert found[".other/launch.json"] == "fail"


def test_json_is_json_where_nothing_could_be_judged(tmp_path, capsys):
    assert main([str(tmp_path), "--json", "--no-run"]) == 2
    out, err = capsys.readouterr()
    (finding,) = json.loads(out)
    assert (finding["name"], finding["verdict"]) == ("folder", "fail")
    assert "has no config.json" in finding["detail"]
    assert "has no config.json" in err
