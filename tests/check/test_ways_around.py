"""Ways to a dangerous function that lead through what transformers and Python do by themselves.

They are those of an attack by eyes that had not seen the reader: none was named before.
"""

import json

import pytest

from hf_tformer.checking.folder import opened
from hf_tformer.checking.reading import static_findings
from support.judged_code import in_groups, judged, stops

BEFORE = """
import enum, functools, typing
from typing import Annotated, Dict, List, Optional
import torch
from torch import nn
from torch.distributions import Normal, kl
from transformers import AttentionInterface, AutoConfig, GenerationConfig, LlamaConfig
from transformers import LlamaForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizer
from transformers.activations import ACT2FN
from transformers.cache_utils import DynamicLayer
def att(*args): return args
"""
SAVES = {
    "unbound": "def f(m): PreTrainedModel.save_pretrained(m, 'x')",
    "alias": "class A(PreTrainedModel):\n    note = PreTrainedModel.save_pretrained",
    "operator": "class C(PretrainedConfig):\n    __matmul__ = PretrainedConfig.save_pretrained",
    "mapped": "def f(m): list(map(PreTrainedModel.save_pretrained, [m], ['x']))",
    "partial": "note = functools.partial(PreTrainedModel.save_pretrained, save_directory='x')",
    "default": "def f(m, call=GenerationConfig.save_pretrained): call(m, 'x')",
    "tokenizer": "def f(t): PreTrainedTokenizer.save_pretrained(t, 'x')",
    "property": "class A(PreTrainedModel):\n"
    "    note = property(lambda self: super(A, self).save_pretrained)",
    "above": "class A(PreTrainedModel):\n    def save_pretrained(self, where):\n"
    "        self.config.save_pretrained(where + '/../x')",
    "another name": "class A(PreTrainedModel):\n    def save_pretrained(self, where):\n"
    "        self.config.save_pretrained(where, config_file_name='../a.txt')",
}
TYPES = {
    "docstring": "class A(PreTrainedModel):\n    spare: List[__doc__]",
    "docstring of another": "class A(PreTrainedModel):\n    spare: List[att.__doc__]",
    "joined": "WORDS = ['op', 'en(1)']\nShape = List[''.join(WORDS)]",
    "formatted": "Shape = List['{}({!r})'.format(*PARTS)]",
    "characters": "Shape = Optional[''.join(map(chr, CODES))]",
    "bytes": "Shape = Dict[str, bytes.fromhex('6f').decode()]",
    "names": "Shape = list[att.__name__ + '(1)']",
    "in braces": "Shape = Optional[f'{PARTS[0]}(1)']",
    "per cent": "Shape = tuple['%s(1)' % tuple(PARTS)]",
    "of a class": "class Shapes:\n    spare = Optional[__doc__]",
}
NAMES = {
    "a dtype": "def f(x): return LlamaConfig(dtype='save').dtype([1], x)",
    "its older name": "def f(x): return LlamaConfig(torch_dtype='save').dtype([1], x)",
    "a dtype of a subclass": "class C(PretrainedConfig):\n"
    "    def __init__(self): super().__init__(dtype='from_file')",
    "an alias": "class C(PretrainedConfig):\n    attribute_map = {'note': 'to_json_file'}",
    "an alias that saves": "class A(PreTrainedModel):\n"
    "    def f(self): self.config.attribute_map = {'note': 'save_pretrained'}",
    "aliases out of sight": "class C(PretrainedConfig):\n    attribute_map = dict(zip(A, B))",
    "a prefix": "class A(PreTrainedModel):\n    base_model_prefix = 'save_pretrained'",
    "a prefix of data": "class A(PreTrainedModel):\n    base_model_prefix = PREFIX",
    "a prefix that is computed": "class A(PreTrainedModel):\n    @property\n"
    "    def base_model_prefix(self): return self.config.prefix",
}
PLACES = {
    "package": "__package__ = 'torch.utils'\nfrom .sibling import run",
    "package, imported": "from .sibling import home as __package__",
    "package, in a loop": "for __package__ in ['torch.utils']: pass",
    "path": "__path__ = ['/tmp/elsewhere']",
    "path, in an expression": "(__path__ := ['/tmp/elsewhere'])",
    "file": "__file__ = '/tmp/secret.txt'",
    "file, by with": "with att('x') as __file__: pass",
    "module": "class A(PreTrainedModel):\n    __module__ = 'user_secrets'",
    "module of a type": "class A:\n    def f(self): type(self).__module__ = 'user_secrets'",
}
REGISTRIES = {
    "a name of data": "def f(config): AttentionInterface.register(config.kernel, att)",
    "a member": "class K(enum.Enum):\n    a = 'sdpa'\nAttentionInterface.register(K.a, att)",
    "a subclass": "class Mine(AttentionInterface): pass\nMine.register('sdpa', att)",
    "cache of all": "class Own(DynamicLayer):\n    _layer_type = 'full_attention'",
    "made again": "ACT2FN.__init__({'silu': nn.Identity})",
    "a class's types": "typing.no_type_check(nn.LayerNorm)",
    "patched": "from transformers.monkey_patching import register_patch_mapping\n"
    "register_patch_mapping({'LlamaMLP': att})",
}
STOPS = in_groups(saves=SAVES, types=TYPES, names=NAMES, places=PLACES, registries=REGISTRIES)
WARNS = {
    "a file of a tokenizer": "PreTrainedTokenizer(vocab_file=PLACE)",
    "a path": "def f(t): t.train(['/home/someone/secret.txt'])",
    "a divergence for all": "@kl.register_kl(Normal, Normal)\ndef none(p, q): return 0",
    "what a class shares": "class Own(LlamaForCausalLM):\n"
    "    def f(self): self._tied_weights_keys.clear()",
}
HONEST = {
    "its own save": "class A(PreTrainedModel):\n    def save_pretrained(self, where, **kwargs):\n"
    "        super().save_pretrained(where, **kwargs)",
    "types": "Shape = Optional[Dict[str, List['torch.Tensor']]]\n"
    "Count = Annotated[int, att()]\nclass A(PreTrainedModel):\n    spare: Shape\n    n: Count",
    "dtypes": "def f(c, d): return LlamaConfig(dtype='bfloat16'), torch.zeros(1, dtype=c.dtype)",
    "other names": "class C(PretrainedConfig):\n"
    "    attribute_map = {'hidden_size': 'n_embd', **LlamaConfig.attribute_map}\n"
    "class A(PreTrainedModel):\n    base_model_prefix = 'transformer'",
    "its own attention": "AttentionInterface.register('att_of_mine', att)",
    "its own cache": "class Own(DynamicLayer):\n    _layer_type = 'layer_of_mine'",
    "a table read": "x = ACT2FN['silu']\ny = 'gelu' in ACT2FN",
}


def kinds_of(code):
    return {found.kind for found in judged(BEFORE + code, sibling="def run(): pass\nhome = 'a'")}


@pytest.mark.parametrize("form", STOPS)
def test_a_way_around_is_not_taken(form):
    assert not any(map(stops, kinds_of("")))
    assert any(map(stops, kinds_of(STOPS[form])))


@pytest.mark.parametrize("form", WARNS)
def test_a_way_that_honest_code_takes_too_is_told(form):
    assert kinds_of(WARNS[form]) - kinds_of("")


@pytest.mark.parametrize("form", HONEST)
def test_an_honest_way_is_free(form):
    assert not any(map(stops, kinds_of(HONEST[form])))


@pytest.mark.parametrize("key", ["dtype", "torch_dtype", "attribute_map"])
@pytest.mark.parametrize("is_inside", [True, False])
def test_a_json_file_cannot_name_what_transformers_looks_up(key, is_inside, tmp_path):
    value = {"note": "save_pretrained"} if key == "attribute_map" else "hub"
    content = {"side": {key: value}} if is_inside else {key: value}
    (tmp_path / "config.json").write_text(json.dumps(content))
    found = [f.detail for f in static_findings(opened(tmp_path)) if f.name == "foreign code"]
    assert any(key in detail and "config.json has" in detail for detail in found)


@pytest.mark.parametrize("dtype", ["float32", "torch.bfloat16", "auto", "float8_e4m3fn", None])
def test_a_json_file_may_name_a_dtype(dtype, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"dtype": dtype, "text": {"dtype": dtype}}))
    details = [f for f in static_findings(opened(tmp_path)) if f.name == "foreign code"]
    assert [finding.verdict for finding in details] == ["ok"]


def test_options_that_a_list_of_a_json_file_names_are_not_taken():
    code = "def f(config): AutoConfig.from_pretrained(config.at, **dict(config.defaults))"
    told = judged(BEFORE + code, {"defaults": ["trust_remote_code"]})
    assert any(stops(found.kind) for found in told)
