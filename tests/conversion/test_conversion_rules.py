"""A layout that its user describes converts in the same language, and is proven likewise."""

import json
import re
from types import SimpleNamespace

import pytest
import torch

import hf_tformer
from conversion import ConversionError, Rule, import_checkpoint
from conversion.command import main
from conversion.engine import transforms
from conversion.engine.rules import matches, plan
from support.plain import assert_same_logits, ours_of
from support.user_rules import ALTERNATING, GPT, MASKED, SECTION, save_mine


@pytest.fixture
def mine(tmp_path):
    """Rules and weights of a layout that no format of ours has."""
    return save_mine(tmp_path, GPT)


def test_rules_of_the_users_own_convert_and_are_proven(tmp_path, mine, capsys):
    model, src, rules = mine
    command = ["import", str(src), str(tmp_path / "ours"), "--rules", str(rules)]
    assert main(command) == 0
    assert "mine; largest difference of the logits" in capsys.readouterr().out
    assert_same_logits(ours_of(tmp_path / "ours"), model, "mine")


@pytest.mark.parametrize("rules", [ALTERNATING, MASKED], ids=["alternating", "masked-lm"])
def test_the_other_rules_of_the_guide_convert_and_are_proven(rules, tmp_path):
    model, src, rules = save_mine(tmp_path, rules)
    done = import_checkpoint(src, tmp_path / "ours", rules=rules)
    assert done.difference < 1e-5
    assert done.compared == "logits"
    ids = torch.randint(101, (1, 9), generator=torch.Generator().manual_seed(1))
    kind = json.loads((tmp_path / "ours/config.json").read_text())["architectures"][0]
    with torch.no_grad():
        ours = getattr(hf_tformer, kind).from_pretrained(tmp_path / "ours")(ids).logits
        torch.testing.assert_close(ours, model(ids), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_an_encoder_without_a_head_is_proven_by_hidden_states(prefix, tmp_path):
    rules = MASKED.replace('FAMILY = "masked-lm"', 'FAMILY = "encoder"')
    rules = rules.replace("return self.head(self.body(states))", "return self.body(states)")
    rules = rules.replace("        self.head = nn.Linear(30, 101)\n", "")
    rules = rules.replace('    *linear("lm_head", "head"),\n', "")
    rules = rules.replace('"model.', f'"{prefix}')
    _, src, rules = save_mine(tmp_path, rules)
    done = import_checkpoint(src, tmp_path / "ours", rules=rules)
    assert done.compared == "hidden states"
    assert done.difference < 1e-5
    rules.write_text(rules.read_text().replace('"hidden_act": "gelu"', '"hidden_act": "relu"'))
    with pytest.raises(ConversionError, match="the hidden states differ by"):
        import_checkpoint(src, tmp_path / "second", rules=rules)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Chain(RotaryPairs", "Chain(Same"),
        ("ModuloHeads(dim=1)", "Same()"),
        (", ModuloHeads())", ")"),
    ],
)
def test_each_transform_of_the_guide_is_needed(old, new, tmp_path):
    _, src, rules = save_mine(tmp_path, ALTERNATING)
    text = rules.read_text().replace(old, new).replace('Same("num_attention_heads")', "Same()")
    rules.write_text(text.replace("import Chain", "import Same, Chain"))
    with pytest.raises(ConversionError, match="the logits differ by"):
        import_checkpoint(src, tmp_path / "ours", rules=rules)


def test_the_guide_lists_every_transform():
    defined = {
        name
        for name, thing in vars(transforms).items()
        if isinstance(thing, type) and hasattr(thing, "forward") and hasattr(thing, "inverse")
    } - {"Transform", "Same"}
    assert set(re.findall(r"`(\w+)\(", SECTION)) >= defined


def test_transforms_for_alternating_layers_have_their_inverses():
    config = SimpleNamespace(
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=4,
        rope_parameters={"rope_type": "default"},
    )
    weight = torch.arange(24.0 * 24).view(24, 24)
    for transform in (
        transforms.ModuloHeads(),
        transforms.ModuloHeads(dim=1),
        transforms.Chain(transforms.RotaryPairs("num_attention_heads"), transforms.ModuloHeads()),
    ):
        there = transform.forward((weight,), config)
        assert not torch.equal(there[0], weight)
        assert torch.equal(transform.inverse(there, config)[0], weight)


def test_layers_of_theirs_are_counted_as_their_pattern_says():
    rules = (
        Rule("layers.{i}.q.weight", "layers.{2i}.q.weight"),
        Rule("layers.{i}.up.weight", "layers.{2i+1}.up.weight"),
        Rule("layers.{i}.norm.weight", "norms.{i+1}.weight"),
    )
    names = [f"layers.{n}.{x}.weight" for n in (0, 1, 12) for x in ("q", "up", "norm")]
    theirs = {step.ours[0]: step.theirs[0] for step in plan(rules, names)}
    assert theirs["layers.12.q.weight"] == "layers.24.q.weight"
    assert theirs["layers.0.up.weight"] == "layers.1.up.weight"
    assert theirs["layers.12.up.weight"] == "layers.25.up.weight"
    assert theirs["layers.1.norm.weight"] == "norms.2.weight"
    assert matches("layers.{2i+1}.up.weight", "layers.25.up.weight")
    assert not matches("layers.{2i+1}.up.weight", "layers.x.up.weight")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def reference", "def no_reference", "no reference.*--no-verify"),
        ("return MyGPT()", "return None", "reference.. of mine"),
        ("RULES = (", "RULE = (", "no RULES"),
        ('FAMILY = "decoder"', 'FAMILY = "both"', "FAMILY is 'both'.*seq2seq"),
        ("import torch\n", "import torhc\n", "does not run.*torhc"),
        ('*linear("lm_head", "head"),', "", "0 rules.*lm_head"),
        ("IGNORED =", "NOTHING =", "no rule explains: steps"),
        ('"hidden_act": "relu"', '"hidden_act": "gelu"', "the logits differ by"),
        ('"num_attention_heads": 3', '"num_attention_heads": 0', "num_attention_heads"),
    ],
)
def test_rules_that_are_wrong_are_refused(old, new, words, tmp_path, mine):
    _, src, rules = mine
    rules.write_text(rules.read_text().replace(old, new))
    with pytest.raises(ConversionError, match=words):
        import_checkpoint(src, tmp_path / "ours", rules=rules)
    assert not (tmp_path / "ours").exists()


def test_rules_leave_nothing_to_be_said(tmp_path, mine):
    _, src, rules = mine
    for said in ({"format": "nanogpt"}, {"settings": {"n_head": 3}}):
        with pytest.raises(ConversionError, match="no format and no settings"):
            import_checkpoint(src, tmp_path / "ours", rules=rules, **said)


def test_rules_without_a_reference_convert_where_no_proof_is_asked_for(tmp_path, mine):
    model, src, rules = mine
    rules.write_text(rules.read_text().replace("def reference", "def no_reference"))
    done = import_checkpoint(src, tmp_path / "ours", rules=rules, verify=False)
    assert done.difference is None
    assert_same_logits(ours_of(tmp_path / "ours"), model, "mine")
