"""A failed proof says behind which layer two models part first, and nothing where it is unknown."""

import dataclasses

import pytest
import torch
from torch import nn

from conversion import ConversionError, export_checkpoint, import_checkpoint, verify
from conversion.engine.first_difference import first_difference, hidden_states, stacks_of
from conversion.engine.registry import FORMATS
from conversion.engine.rules import Rule, linear, replaced
from support.converting import CASES, edit_weights, save_ours, save_theirs
from support.user_rules import ALTERNATING, GPT, MASKED, save_mine

SWAPPED = """
from conversion.engine.rules import numbered

def by_layer(rule, layer):
    names = rule.ours if isinstance(rule.ours, tuple) else (rule.ours,)
    ours, theirs = (numbered(name, layer) for name in names), numbered(rule.theirs, layer)
    return Rule(tuple(ours), theirs, rule.transform)

def swapped(rule):
    q, k, v = rule.ours
    return Rule((k, q, v), rule.theirs, rule.transform)

LAYERS = [by_layer(rule, layer) for layer in range(2) for rule in RULES if "{i}" in str(rule.ours)]
ONES = [rule for rule in RULES if "{i}" not in str(rule.ours)]
RULES = (*ONES, *(swapped(r) if len(r.ours) == 3 and WRONG in r.ours[0] else r for r in LAYERS))
"""


def refusal(run, *arguments, **options):
    with pytest.raises(ConversionError, match="differ by") as caught:
        run(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize("rules", [GPT, MASKED], ids=["gpt", "masked-lm"])
@pytest.mark.parametrize("layer", [0, 1])
def test_rules_that_swap_q_and_k_in_one_layer_are_told_which(layer, rules, tmp_path):
    wrong = f'{rules}\nWRONG = "layers.{layer}."\n{SWAPPED}'
    _, src, path = save_mine(tmp_path, wrong)
    told = refusal(import_checkpoint, src, tmp_path / "ours", rules=path)
    assert told.endswith(f"; the first difference is behind layer {layer}")
    path.write_text(wrong.replace(f'WRONG = "layers.{layer}."', 'WRONG = "nowhere"'))
    assert import_checkpoint(src, tmp_path / "ours", rules=path).difference < 1e-5


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ('"scale_embedding": True', "before the first layer"),
        ('"logit_scale": 0.5', "behind the last layer"),
    ],
)
def test_what_lies_around_the_layers_is_named_too(field, place, tmp_path):
    rules = GPT.replace('"final_norm": False', f'"final_norm": False, {field}')
    _, src, path = save_mine(tmp_path, rules)
    told = refusal(import_checkpoint, src, tmp_path / "ours", rules=path)
    assert told.endswith(f"; the first difference is {place}")


def test_nothing_is_said_where_the_layers_are_not_found(tmp_path):
    """Layers of theirs are two lists of modules that are called, not layers of one class."""
    rules = ALTERNATING.replace("ModuloHeads(dim=1)", 'RotaryPairs("num_attention_heads")')
    _, src, path = save_mine(tmp_path, rules)
    told = refusal(import_checkpoint, src, tmp_path / "ours", rules=path)
    assert "first difference" not in told
    assert told.endswith("do not compute the same")


@pytest.mark.parametrize("layer", [0, 2])
def test_a_wrong_table_of_a_format_is_told_its_layer(layer, tmp_path, monkeypatch):
    form = FORMATS["llama"]
    other = {"gate_proj": "up_proj", "up_proj": "gate_proj"}
    spoiled = tuple(
        Rule(
            f"model.layers.{n}.mlp.{name}.weight",
            f"model.layers.{n}.mlp.{other[name] if n == layer else name}.weight",
        )
        for n in range(3)
        for name in other
    )
    names = {f"model.layers.{{i}}.mlp.{name}.weight" for name in other}
    rules = (*(rule for rule in form.rules if rule.ours not in names), *spoiled)
    monkeypatch.setitem(FORMATS, "llama", dataclasses.replace(form, rules=rules))
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    told = refusal(import_checkpoint, tmp_path / "theirs", tmp_path / "ours")
    assert told.endswith(f"; the first difference is behind layer {layer}")


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_the_stack_of_an_encoder_decoder_is_named(stack, tmp_path):
    save_theirs(CASES["bart"], tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    name = f"model.{stack}.layers.1.mlp.up_proj.weight"
    edit_weights(tmp_path / "ours", lambda t: t.update({name: t[name] + 0.5}))
    told = refusal(verify, tmp_path / "theirs", tmp_path / "ours")
    assert told.endswith(f"; the first difference is behind layer 1 of the {stack}")


def test_an_export_that_differs_is_told_its_layer(tmp_path, monkeypatch):
    form = FORMATS["llama"]
    spoiled = replaced(
        form.rules,
        *linear("model.layers.{i}.mlp.up_proj", "model.layers.{i}.mlp.gate_proj"),
        *linear("model.layers.{i}.mlp.gate_proj", "model.layers.{i}.mlp.up_proj"),
    )
    monkeypatch.setitem(FORMATS, "llama", dataclasses.replace(form, rules=spoiled))
    save_ours(tmp_path / "ours", initializer_range=0.5)
    told = refusal(export_checkpoint, tmp_path / "ours", tmp_path / "theirs", to="llama")
    assert told.endswith("; the first difference is behind layer 0")


def test_models_of_other_depths_have_no_first_difference():
    states = [torch.zeros(2, 3)] * 3
    assert first_difference({"layers": states}, {"layers": states[:2]}, 1e-5) == ""
    assert first_difference({}, {}, 1e-5) == ""
    assert first_difference({"layers": [None] * 3}, {"layers": states}, 1e-5) == ""
    wider = [torch.zeros(2, 4)] * 3
    assert first_difference({"layers": wider}, {"layers": states}, 1e-5) == ""
    nan = [*states[:2], torch.full((2, 3), float("nan"))]
    assert first_difference({"layers": nan}, {"layers": states}, 1e-5).endswith("behind layer 1")


def test_hooks_are_removed_even_where_a_model_fails():
    layers = [nn.Sequential(nn.Linear(3, 3)) for _ in range(2)]
    model = nn.Sequential(nn.ModuleList(layers))
    assert [stack.name for stack in stacks_of(model)] == ["0"]

    def fail():
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        hidden_states(model, fail, {})
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)
