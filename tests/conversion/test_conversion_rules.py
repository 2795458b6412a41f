"""A layout that its user describes converts in the same language, and is proven likewise."""

import importlib
import re
import runpy

import pytest
import torch

from conversion import ConversionError, import_checkpoint
from conversion.command import main
from support.paths import ROOT
from support.plain import assert_same_logits, ours_of


def rules_of_the_guide():
    """What CONTRIBUTING.md shows under "A layout of your own", as it stands."""
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    section = guide.split("## A layout of your own")[1].split("\n## ")[0]
    return section.split("```python\n")[1].split("```")[0]


@pytest.fixture
def mine(tmp_path):
    """Rules and weights of a layout that no format of ours has."""
    (tmp_path / "mine.py").write_text(rules_of_the_guide())
    model = runpy.run_path(str(tmp_path / "mine.py"))["reference"]()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)
    state = {**model.state_dict(), "steps": torch.tensor(7)}
    torch.save({"state_dict": state}, tmp_path / "w.ckpt")
    return model.eval(), tmp_path / "w.ckpt", tmp_path / "mine.py"


def test_rules_of_the_users_own_convert_and_are_proven(tmp_path, mine, capsys):
    model, src, rules = mine
    command = ["import", str(src), str(tmp_path / "ours"), "--rules", str(rules)]
    assert main(command) == 0
    assert "mine; largest difference of the logits" in capsys.readouterr().out
    assert_same_logits(ours_of(tmp_path / "ours"), model, "mine")


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


OLD_SPELLINGS = {
    "conversion.formats": ("DECODER", "Format", "carry", "require"),
    "conversion.llama": ("ALL_OF_THEM", "LIKE_LLAMA", "RULES", "SAME_FIELDS"),
    "conversion.registry": ("FORMATS",),
    "conversion.rules": ("Rule", "linear", "ConversionError", "Side"),
    "conversion.transforms": ("Split",),
}


@pytest.mark.parametrize("old", OLD_SPELLINGS)
def test_modules_that_have_moved_are_found_by_their_old_names_with_a_warning(old):
    for name in OLD_SPELLINGS[old]:
        with pytest.warns(FutureWarning, match=f"{old}.{name} has moved") as caught:
            exec(f"from {old} import {name}", found := {})
        new_name, module = re.search(r"import (\S+) from (\S+)", str(caught[0].message)).groups()
        assert found[name] is getattr(importlib.import_module(module), new_name)
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from {old} import nothing")
