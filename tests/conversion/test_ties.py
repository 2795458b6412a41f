"""Tied tables that hold different values are refused with advice that works when it is followed."""

import re

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from conversion import ConversionError, export_checkpoint, import_checkpoint
from conversion.engine.plain import parse_settings
from support.converting import CASES, edit_config, edit_weights, save_ours, save_theirs
from support.plain import CASES as PLAIN


def refusal(src, dst, **options):
    with pytest.raises(ConversionError, match="hold different values") as caught:
        import_checkpoint(src, dst, **options)
    return str(caught.value)


def add_head(folder, shape_of):
    def change(tensors):
        generator = torch.Generator().manual_seed(1)
        shape = tensors[shape_of].shape
        tensors["lm_head.weight"] = torch.randn(shape, generator=generator)

    edit_weights(folder, change)


@pytest.mark.parametrize(
    ("case", "table"),
    [
        ("llama tied", "model.embed_tokens.weight"),
        ("gpt2", "transformer.wte.weight"),
        ("bloom", "transformer.word_embeddings.weight"),
        ("bart", "model.shared.weight"),
        ("marian", "model.shared.weight"),
    ],
)
def test_the_advice_for_a_folder_imports_and_is_proven(case, table, tmp_path):
    src = tmp_path / "theirs"
    save_theirs(CASES[case], src)
    add_head(src, table)
    told = refusal(src, tmp_path / "ours")
    assert "--set" not in told
    assert "transformers keeps both" in told
    assert "set tie_word_embeddings to false in config.json" in told
    edit_config(src, tie_word_embeddings=False)
    if copies := re.search(r"store (\S+) as (\S+) and (\S+) too", told):
        first, *others = copies.groups()
        assert first == table
        edit_weights(src, lambda t: t.update({name: t[first].clone() for name in others}))
    assert import_checkpoint(src, tmp_path / "ours").difference is not None


def test_transformers_keeps_both_tables_as_the_refusal_says(tmp_path):
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    add_head(tmp_path / "theirs", "model.embed_tokens.weight")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "theirs")
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)


@pytest.mark.parametrize(
    ("case", "name"),
    [("aiayn proj - prj", "trg_word_prj"), ("aiayn - embs prj", "encoder.src_word_emb")],
)
def test_the_advice_for_a_plain_file_imports_and_is_proven(case, name, tmp_path):
    _, src = PLAIN[case].save_to(tmp_path)
    saved = torch.load(src, weights_only=False)
    saved["model"][f"{name}.weight"] = saved["model"][f"{name}.weight"] + 1
    torch.save(saved, src)
    told = refusal(src, tmp_path / "ours")
    assert "config.json" not in told
    (setting,) = re.findall(r"give --set (\S+)", told)
    done = import_checkpoint(src, tmp_path / "ours", settings=parse_settings([setting]))
    assert done.difference is not None


def test_a_layout_that_always_ties_leads_to_rules(tmp_path):
    model, _ = PLAIN["nanogpt"].save_to(tmp_path)
    state = model.state_dict()
    state["lm_head.weight"] = state["lm_head.weight"] + 1
    torch.save(state, tmp_path / "w.pt")
    told = refusal(tmp_path / "w.pt", tmp_path / "ours", settings={"n_head": 3})
    assert "nanogpt always does: describe the file with --rules" in told


def test_the_advice_for_a_folder_of_ours_exports(tmp_path):
    save_ours(tmp_path / "ours", tie_word_embeddings=True)
    add_head(tmp_path / "ours", "model.embed_tokens.weight")
    with pytest.raises(ConversionError, match="set tie_word_embeddings to false"):
        export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to="llama")
    edit_config(tmp_path / "ours", tie_word_embeddings=False)
    done = export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to="llama")
    assert done.difference is not None
    assert "lm_head.weight" in load_file(tmp_path / "theirs/model.safetensors")
