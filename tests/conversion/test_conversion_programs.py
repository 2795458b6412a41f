"""Checkpoints of training programs become ours; what ours cannot express is refused by name."""

import random

import pytest
import torch

from conversion import ConversionError, export_checkpoint, import_checkpoint, verify
from conversion.command import main
from conversion.engine.registry import detect
from conversion.formats.plain.litgpt_folder import YAML_BYTES
from hf_tformer import TformerEncoderForMaskedLM
from support.converting import assert_refused
from support.drawn_programs import (
    litgpt,
    litgpt_settings,
    nanochat,
    save_litgpt,
    save_nanochat,
    torchtune,
    torchtune_settings,
    x_transformers,
    x_transformers_state,
)
from support.plain import ours_of
from support.programs_in import assert_same_encoder, assert_same_model

SEEDS = range(16)


# LitGPT


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


# nanochat


@pytest.mark.parametrize("seed", range(6))
def test_nanochat_is_imported(seed, tmp_path):
    settings, theirs = nanochat(seed)
    compiled = {f"_orig_mod.{name}": tensor for name, tensor in theirs.state_dict().items()}
    save_nanochat(settings, compiled, tmp_path / "theirs")
    assert detect(tmp_path / "theirs").name == "nanochat-checkpoint"
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference < 1e-4
    transformer = theirs.transformer
    blocks = list(transformer["h"].children())
    assert_same_model(ours_of(tmp_path / "ours"), theirs, blocks, transformer["wte"].weight)


def test_the_last_step_of_nanochat_is_imported_by_the_command(tmp_path):
    settings, first = nanochat(0)
    _, last = nanochat(0)
    with torch.no_grad():
        last.lm_head.weight.neg_()
    save_nanochat(settings, first.state_dict(), tmp_path / "theirs", step=999)
    save_nanochat(settings, last.state_dict(), tmp_path / "theirs", step=1000)
    (tmp_path / "theirs/model_001001.pt").write_bytes(b"")  # still being written
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    ids = torch.arange(7)[None]
    torch.testing.assert_close(ours_of(tmp_path / "ours")(ids).logits, last(ids))
    # Onwards to code that was written elsewhere.
    export_checkpoint(tmp_path / "ours", tmp_path / "stock", to="nanochat")
    assert verify(tmp_path / "theirs", tmp_path / "stock") < 1e-4


@pytest.mark.parametrize("name", ["value_embeds.1.weight", "smear_gate.weight", "resid_lambdas"])
def test_what_nanochat_has_had_since_2026_is_refused(name, tmp_path):
    settings, theirs = nanochat(0)
    save_nanochat(settings, {**theirs.state_dict(), name: torch.ones(2)}, tmp_path / "theirs")
    assert_refused(tmp_path, name, "tformer new")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n_head": 7}, "n_head is 7"),
        ({"n_layer": 9}, "n_layer is 9"),
        ({"vocab_size": 999}, "vocab_size is 999"),
        ({"n_embd": "36"}, "n_embd is '36'"),
        ({"n_kv_head": 4}, "n_kv_head is 4"),
    ],
)
def test_settings_of_nanochat_that_do_not_fit_are_refused(fields, words, tmp_path):
    settings, theirs = nanochat(0)
    save_nanochat({**settings, **fields}, theirs.state_dict(), tmp_path / "theirs")
    assert_refused(tmp_path, words)


# torchtune


@pytest.mark.parametrize("seed", range(20))
def test_torchtune_is_imported(seed, tmp_path):
    said, theirs = torchtune(seed)
    torch.save(theirs.state_dict(), tmp_path / "model-00001-of-00001.bin")
    assert detect(tmp_path / "model-00001-of-00001.bin").name == "torchtune"
    done = import_checkpoint(
        tmp_path / "model-00001-of-00001.bin", tmp_path / "ours", settings=said
    )
    assert done.difference < 1e-4
    table = theirs.tok_embeddings.weight
    assert_same_model(ours_of(tmp_path / "ours"), theirs, theirs.layers, table)


def test_the_drawn_settings_of_torchtune_reach_every_model():
    drawn = {torchtune_settings(random.Random(seed))[1]["model"] for seed in range(20)}
    assert len(drawn) == 7


def test_the_command_asks_for_the_builder_of_torchtune(tmp_path, capsys):
    said, theirs = torchtune(next(s for s in range(9) if torchtune(s)[0]["model"] == "llama3"))
    path = tmp_path / "model-00001-of-00001.bin"
    torch.save(theirs.state_dict(), path)
    command = ["import", str(path), str(tmp_path / "ours")]
    assert main(command) == 1
    assert "--set model=llama3_1 --set num_heads=32" in capsys.readouterr().err
    words = [word for name, value in said.items() for word in ("--set", f"{name}={value}")]
    assert main([*command, *words]) == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "gemma2"}, "model is 'gemma2'.*choose one of llama2"),
        ({"model": "qwen2"}, "queries of the file have no bias"),
        ({"num_heads": 5}, "num_heads is 5"),
    ],
)
def test_a_builder_of_torchtune_that_did_not_make_the_file_is_refused(settings, words, tmp_path):
    said, theirs = torchtune(next(s for s in range(9) if torchtune(s)[0]["model"] == "llama3"))
    torch.save(theirs.state_dict(), tmp_path / "model.bin")
    with pytest.raises(ConversionError, match=words):
        import_checkpoint(tmp_path / "model.bin", tmp_path / "ours", settings={**said, **settings})


def test_gemma_2_of_torchtune_is_refused_with_the_reason(tmp_path):
    said, theirs = torchtune(0)
    state = {**theirs.state_dict(), "layers.0.sa_scale.scale": torch.ones(36)}
    torch.save(state, tmp_path / "model.bin")
    with pytest.raises(ConversionError, match=r"Gemma 2.*FullModelHFCheckpointer"):
        import_checkpoint(tmp_path / "model.bin", tmp_path / "ours", settings=said)


# x-transformers


def blocks_of_x_transformers(theirs):
    return theirs.attn_layers.layers[1::2]


@pytest.mark.parametrize("seed", range(14))
def test_a_decoder_of_x_transformers_is_imported(seed, tmp_path):
    said, theirs = x_transformers(seed, causal=True)
    wrapped = {f"net.{name}": tensor for name, tensor in x_transformers_state(theirs).items()}
    torch.save(wrapped, tmp_path / "model.pt")  # as AutoregressiveWrapper saves
    done = import_checkpoint(
        tmp_path / "model.pt", tmp_path / "ours", "x-transformers", settings=said
    )
    assert done.difference < 1e-4
    table, blocks = theirs.token_emb["emb"].weight, blocks_of_x_transformers(theirs)
    assert_same_model(ours_of(tmp_path / "ours"), theirs, blocks, table)


@pytest.mark.parametrize("seed", range(10))
def test_an_encoder_of_x_transformers_is_imported(seed, tmp_path):
    said, theirs = x_transformers(seed, causal=False)
    torch.save(x_transformers_state(theirs), tmp_path / "model.pt")
    import_checkpoint(
        tmp_path / "model.pt", tmp_path / "ours", "x-transformers-encoder", settings=said
    )
    ours = TformerEncoderForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    assert_same_encoder(ours, theirs, theirs.token_emb["emb"].weight)


def test_the_command_asks_which_of_both_stacks_of_x_transformers_it_is(tmp_path, capsys):
    said, theirs = x_transformers(1, causal=True)
    torch.save(x_transformers_state(theirs), tmp_path / "model.pt")
    command = ["import", str(tmp_path / "model.pt"), str(tmp_path / "ours")]
    assert main(command) == 1
    assert "--format x-transformers or x-transformers-encoder" in capsys.readouterr().err
    words = [word for name, value in said.items() for word in ("--set", f"{name}={value}")]
    assert main([*command, "--format", "x-transformers", *words]) == 0
    assert "assumed norm_add_unit_offset=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attn_layers.layers.0.1.to_v_gate.weight": 1}, "to_v_gate.weight, an option"),
        ({"attn_layers.rel_pos.relative_attention_bias.weight": 1}, "relative_attention_bias"),
        ({"pos_emb.scale": 1}, "pos_emb.scale, an option"),
        ({"attn_layers.layers.1.1.ff.2.weight": 0}, "cross_attend, macaron"),
        ({"attn_layers.layers.0.0.2.gamma": 1}, "norms of the first layer are"),
        ({"attn_layers.layers.0.1.to_out.weight": 0}, "heads is 1"),
    ],
)
def test_an_option_of_x_transformers_that_ours_lacks_is_refused(change, words, tmp_path):
    said, theirs = x_transformers(1, causal=True)
    state = x_transformers_state(theirs)
    for name, is_new in change.items():
        state.pop(name, None)
        state |= {name: torch.ones(32, 6)} if is_new else {}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(ConversionError, match=words):
        import_checkpoint(tmp_path / "model.pt", tmp_path / "ours", "x-transformers", settings=said)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"attn_dim_head": 7}, "attn_dim_head is 7"),
        ({"activation": "mish"}, "activation is 'mish'"),
        ({"heads": 6}, "heads cannot be set"),
    ],
)
def test_settings_of_x_transformers_that_do_not_fit_are_refused(settings, words, tmp_path):
    said, theirs = x_transformers(1, causal=True)
    torch.save(x_transformers_state(theirs), tmp_path / "model.pt")
    with pytest.raises(ConversionError, match=words):
        import_checkpoint(
            tmp_path / "model.pt",
            tmp_path / "ours",
            "x-transformers",
            settings={**said, **settings},
        )


def test_frequencies_that_are_no_rotation_are_refused(tmp_path):
    seed = next(s for s in range(20) if x_transformers(s, True)[1].config.rotary_emb_dim == 8)
    said, theirs = x_transformers(seed, causal=True)
    state = x_transformers_state(theirs)
    state["attn_layers.rotary_pos_emb.inv_freq"][1] *= 2
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(ConversionError, match="no powers of one base"):
        import_checkpoint(tmp_path / "model.pt", tmp_path / "ours", "x-transformers", settings=said)


def test_a_tied_encoder_of_x_transformers_is_refused(tmp_path):
    said, theirs = x_transformers(1, causal=False)
    state = x_transformers_state(theirs)
    del state["to_logits.weight"]
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(ConversionError, match="tied is True"):
        import_checkpoint(
            tmp_path / "model.pt", tmp_path / "ours", "x-transformers-encoder", settings=said
        )
