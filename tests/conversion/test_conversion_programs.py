"""Checkpoints of training programs become ours; what ours cannot express is refused by name."""

import random

import pytest
import torch

from conversion import export_checkpoint, import_checkpoint, verify
from conversion.command import main
from conversion.engine.registry import detect
from conversion.formats.plain.litgpt_folder import YAML_BYTES
from support.converting import assert_refused
from support.drawn_programs import litgpt, litgpt_settings, save_litgpt
from support.plain import ours_of
from support.programs_in import assert_same_model

SEEDS = range(16)


@pytest.mark.parametrize("seed", SEEDS)
def test_litgpt_is_imported(seed, tmp_path):
    settings, theirs = litgpt(seed)
    save_litgpt(settings, theirs.state_dict(), tmp_path / "theirs")
    name = "litgpt-moe" if settings["mlp_class_name"] == "LLaMAMoE" else "litgpt"
    assert detect(tmp_path / "theirs").name == name
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert done.difference < 1e-4
    transformer = theirs.transformer
    blocks = list(transformer["h"].children())
    assert_same_model(ours_of(tmp_path / "ours"), theirs, blocks, transformer["wte"].weight)


def test_the_drawn_settings_of_litgpt_reach_every_branch():
    drawn = [litgpt_settings(random.Random(seed)) for seed in SEEDS]
    assert {one["mlp_class_name"] for one in drawn} == {
        "GptNeoxMLP",
        "LLaMAMLP",
        "GemmaMLP",
        "LLaMAMoE",
    }
    assert {one["shared_attention_norm"] for one in drawn} == {True, False}
    for name in ("n_expert_groups", "rope_local_base_freq", "sliding_window_size"):
        assert any(one.get(name) for one in drawn), name


PLAIN = {"mlp_class_name": "LLaMAMLP", "name": "tiny", "norm_class_name": "RMSNorm"}
PLAIN |= {"norm_qk": False, "norm_1": True, "norm_2": True, "post_attention_norm": False}
PLAIN |= {"post_mlp_norm": False, "parallel_residual": False, "shared_attention_norm": False}
PLAIN |= {"bias": False, "attn_bias": False, "lm_head_bias": False, "rope_adjustments": None}
PLAIN |= {"rotary_percentage": 1.0, "rope_condense_ratio": 1, "n_query_groups": 3}
PLAIN |= {"sliding_window_size": None, "rope_local_base_freq": None, "head_size": 6}
PLAIN |= {"attention_logit_softcapping": None, "final_logit_softcapping": None}
PLAIN |= {"attention_scores_scalar": None, "scale_embeddings": False}


def test_the_command_imports_litgpt_with_its_tables_tied_and_its_optimiser(tmp_path, capsys):
    settings, theirs = litgpt(1, **PLAIN)
    theirs.lm_head.weight = theirs.transformer["wte"].weight
    optimizer = torch.optim.AdamW(theirs.parameters()).state_dict()
    save_litgpt(settings, theirs.state_dict(), tmp_path / "theirs", optimizer=optimizer, step=3)
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    assert "litgpt" in capsys.readouterr().out
    assert ours_of(tmp_path / "ours").config.tie_word_embeddings
    # Onwards to code that was written elsewhere.
    export_checkpoint(tmp_path / "ours", tmp_path / "llama", to="llama")
    assert verify(tmp_path / "theirs", tmp_path / "llama") < 1e-4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"latent_attention": {"q_lora_rank": 4}}, ["latent_attention is {'q_lora_rank': 4}"]),
        ({"rope_interleave": True}, ["rope_interleave is True"]),
        ({"post_mlp_norm": True}, ["post_mlp_norm is True"]),
        ({"norm_2": False}, ["norm_2 is False"]),
        ({"norm_1": False, "norm_2": False}, ["post_attention_norm is False"]),
        ({"shared_attention_norm": True}, ["shared_attention_norm is True"]),
        ({"mlp_class_name": "Swish"}, ["mlp_class_name is 'Swish'"]),
        ({"norm_class_name": "ScaleNorm"}, ["norm_class_name is 'ScaleNorm'"]),
        ({"rope_adjustments": {"factor": 2.0, "beta_fast": 32}}, ["rope_adjustments", "beta_fast"]),
        ({"n_layer": 5}, ["n_layer is 5", "holds 2"]),
        ({"n_head": 0}, ["n_head is 0"]),
        ({"n_embd": "36"}, ["n_embd is '36'"]),
        ({"sliding_window_size": 4, "sliding_window_indices": [1]}, ["sliding_window_indices"]),
        ({"rope_local_base_freq": 5.0, "rope_indices": [0, 1]}, ["rope_indices is [0, 1]"]),
        ({"attention_sinks": 4}, ["attention_sinks is 4", "remove it"]),
    ],
)
def test_what_ours_cannot_express_of_litgpt_is_refused(fields, words, tmp_path):
    settings, theirs = litgpt(1, **PLAIN, n_layer=2)
    save_litgpt({**settings, **fields}, theirs.state_dict(), tmp_path / "theirs")
    assert_refused(tmp_path, *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("- 1\n", "holds no settings"),
        ("a: [1\n", "no YAML"),
        ("[" * 5000, "no YAML"),
        ("!!python/object/apply:os.system ['true']", "no YAML"),
        ("a: " + "b" * YAML_BYTES, "too many"),
    ],
)
def test_settings_of_litgpt_that_nobody_wrote_are_refused(text, words, tmp_path):
    settings, theirs = litgpt(1, **PLAIN)
    save_litgpt(settings, theirs.state_dict(), tmp_path / "theirs")
    (tmp_path / "theirs/model_config.yaml").write_text(text)
    assert_refused(tmp_path, "model_config.yaml", words)


def test_tensors_by_the_names_of_an_old_litgpt_are_refused(tmp_path):
    settings, theirs = litgpt(1, **PLAIN)
    state = {n.replace("attn.qkv", "attn.attn"): t for n, t in theirs.state_dict().items()}
    save_litgpt(settings, state, tmp_path / "theirs")
    assert_refused(tmp_path, "before 0.5.4", "save its state_dict")


def test_the_file_of_litgpt_alone_leads_to_its_folder(tmp_path):
    settings, theirs = litgpt(1, **PLAIN)
    save_litgpt(settings, theirs.state_dict(), tmp_path / "lit")
    (tmp_path / "theirs").symlink_to(tmp_path / "lit/lit_model.pth")
    assert_refused(tmp_path, "give")
