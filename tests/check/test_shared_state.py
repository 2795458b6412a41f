"""What all models share is not changed unseen: methods of base classes, tables, settings of torch.

The forms are those of an attack: a class or a table reaches the place where it is changed by ways
that a reader cannot follow, so the change itself is what counts.
"""

import pytest

from hf_tformer.checking.strings import evaluated_comments
from support.judged_code import found_in, in_groups, stops

BEFORE = """
import contextlib, copy, dataclasses, enum, functools, types, typing
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
def evil(*args): return args[-1]
LAYERS = {"linear": nn.Linear}
"""
BOX = "class Box:\n    def setup(self): self.forward = evil\n"


METHODS = {
    "self of another class": BOX + "Box.setup(nn.Linear)",
    "bound to another class": BOX + "types.MethodType(Box.setup, nn.Linear)()",
    "mapped over classes": BOX + "list(map(Box.setup, [nn.Linear]))",
    "item of a table": "LAYERS['linear'].forward = evil",
    "items in a loop": "for layer in LAYERS.values(): layer.forward = evil",
    "by setattr": "setattr(list(LAYERS.values())[0], 'forward', evil)",
    "deleted": "del list(LAYERS.values())[0].extra_repr",
    "with an annotation": "list(LAYERS.values())[0].extra_repr: object = evil",
    "function of a partial": "functools.partial(nn.Linear).func.forward = evil",
    "argument of a type": "typing.get_args(typing.Union[nn.Linear, int])[0].forward = evil",
    "default of a parameter": "def fuse(layer=nn.Linear): layer.forward = evil",
    "member of an enum": "class E(enum.Enum):\n    A = nn.Linear\nE.A.value.forward = evil",
    "captured by match": "match nn.Linear:\n    case layer: layer.forward = evil",
    "target of a loop": "for layer.forward in [evil]: pass",
    "made a dataclass": "for layer in LAYERS.values(): dataclasses.dataclass(layer)",
    "registered instead": "def add(auto, kind): auto.register(kind, evil, exist_ok=True)",
    "named as a class of its own": "class A: pass\n"
    "def fuse(A): A.forward = evil\nfuse(list(LAYERS.values())[0])",
    "base of a metaclass": "class M(type):\n"
    "    def __init__(cls, name, bases, space): bases[0].tie_weights = evil",
    "self by a partial": "class A(nn.Module):\n"
    "    def setup(self): self.forward = functools.partial(evil)",
}
TABLES = {
    "argument": "def fill(table): table['gelu'] = evil\nfill(ACT2FN)",
    "keyword": "def fill(**tables): tables['a']['gelu'] = evil\nfill(a=ACT2FN)",
    "default": "def fill(table=ACT2FN): table['gelu'] = evil",
    "attribute": "class A:\n    def f(self):\n        self.acts = ACT2FN",
    "class attribute": "class A:\n    acts = ACT2FN",
    "item": "T = [ACT2FN]\nT[0]['gelu'] = evil",
    "returned": "def table(): return ACT2FN\ntable()['gelu'] = evil",
    "right of an operator": "class Box: pass\nBox() << ACT2FN",
    "left of in": "class Box: pass\nACT2FN in Box()",
    "its method": "put = ACT2FN.update\nput(gelu=evil)",
    "method of dict": "dict.update(ACT2FN, gelu=evil)",
    "rotations": "def fill(table): table['default'] = evil\nfill(ROPE_INIT_FUNCTIONS)",
    "attention": "def add(table): table.register('sdpa', evil)\nadd(ALL_ATTENTION_FUNCTIONS)",
}
FORMATS = {
    "itself": "class A:\n    def f(self, text): return self.config.text.format(self)",
    "parts": "def f(text, parts): return text.format(*parts)",
    "configuration": "def f(text, config): return text.format(config=config)",
    "function": "def f(text): return text.format(torch.relu)",
    "unbound": "def f(texts, it): return list(map(str.format, texts, [it]))",
}
EVALUATED = {
    "singledispatch": "@functools.singledispatch\ndef size(x): return 0",
    "singledispatchmethod": "class A:\n    size = functools.singledispatchmethod(evil)",
}
STOPS = in_groups(
    methods=METHODS,
    tables=TABLES,
    format=FORMATS,
    evaluated=EVALUATED,
    files={"mapped": "def f(t): t.untyped_storage().from_file('x', True, 40).fill_(0)"},
)
WARNS = {
    "map of attributes": "def f(config): config.attribute_map['eos_token_id'] = 'bos_token_id'",
    "plan": "def f(config): config.base_model_tp_plan.clear()",
    "plan of another name": "def f(config):\n    p = config.base_model_tp_plan\n    p.clear()",
    "or-assigned": "def f(config): config.ignore_keys_at_rope_validation |= {'factor'}",
    "or-assigned, by another name": "def f(config):\n"
    "    keys = config.ignore_keys_at_rope_validation\n    keys |= {'factor'}",
    "messages dropped": "import logging\nlogging.getLogger('transformers').addFilter(evil)",
    "gradients off": "torch.set_grad_enabled(False)",
    "entered": "torch.no_grad().__enter__()",
    "a stack": "stack = contextlib.ExitStack()\nstack.enter_context(torch.no_grad())",
    "a generator": "def f():\n    with torch.no_grad():\n        yield",
}
HONEST = {
    "a class of its own": "class A(nn.Module): pass\nA.forward = evil",
    "norm_layer": "class A(nn.Module):\n    def __init__(self, norm_layer=nn.LayerNorm):\n"
    "        self.norm = norm_layer(8)\n        self.act = ACT2FN['gelu']",
    "a size": "class A(nn.Module):\n    def __init__(self, dim):\n        self.half = dim // 2",
    "looked up": "x = ALL_ATTENTION_FUNCTIONS.get_interface('sdpa', evil)\ny = 'gelu' in ACT2FN\n"
    "names = sorted((None, *ACT2FN))\nfor name in ACT2FN: pass\nx = ROPE_INIT_FUNCTIONS['linear']",
    "text": "def f(n): return 'took {} of {n}'.format(str(n), n=n)",
    "weights": "def f(layer, w):\n    layer.weight = nn.Parameter(w)\n    layer.bias = None",
    "plan read": "def f(config): return dict(config.base_model_tp_plan)",
    "gradients": "def f(x, on):\n    with torch.set_grad_enabled(on):\n        return x + 1",
    "own context": "@contextlib.contextmanager\ndef f():\n    with torch.no_grad():\n        yield",
    "with a stack": "with contextlib.ExitStack() as s:\n    s.enter_context(torch.no_grad())",
}


@pytest.mark.parametrize("form", STOPS)
def test_what_may_change_the_code_of_others_is_not_run(form):
    assert not any(stops(found.kind) for found in found_in(BEFORE))
    assert any(stops(found.kind) for found in found_in(BEFORE + STOPS[form]))


@pytest.mark.parametrize("form", WARNS)
def test_what_changes_settings_for_all_is_told(form):
    assert "global flags" in {found.kind for found in found_in(BEFORE + WARNS[form])}


@pytest.mark.parametrize("form", HONEST)
def test_what_only_looks_like_it_is_left_alone(form):
    # The form stands below, so that what is above it has the same lines.
    assert not set(found_in(BEFORE + HONEST[form])) - set(found_in(BEFORE))


COMMENTS = {
    "# type: (Kind[torch.os.system]) -> Tensor": True,
    "# type: (Tensor) -> Kind[exec]": True,
    "# type: (go('x')) -> Tensor": True,
    "# type: (Tensor, List[int], Optional[Dict[str, torch.Tensor]]) -> Tuple[int, float]": False,
    "# type: ignore[call]": False,
    "# type: list[str]": False,
}


@pytest.mark.parametrize("comment", COMMENTS)
def test_a_comment_that_torch_evaluates_has_types_alone(comment):
    assert (
        bool(evaluated_comments(f"def f(x):\n    {comment}\n    return x\n")) == COMMENTS[comment]
    )
