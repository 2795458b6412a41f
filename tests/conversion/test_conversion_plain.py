"""Checkpoints of plain PyTorch programs become ours, with the logits that they had there."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from book import DOCS
from safetensors.torch import load_file, save_file
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

import conversion.engine.convert
from conversion import ConversionError, export_checkpoint, import_checkpoint, verify
from conversion.command import main
from conversion.engine.registry import FORMATS, detect
from conversion.engine.transforms import Same
from support.converting import assert_refused
from support.drawn_programs import litgpt, save_litgpt
from support.pages import commands
from support.plain import (
    CASES,
    assert_same_logits,
    config_of,
    nanogpt,
    ours_of,
    save_nanogpt,
)


@pytest.mark.parametrize("name", CASES)
def test_an_import_is_recognised_and_has_the_same_logits(name, tmp_path):
    case = CASES[name]
    theirs, src = case.save_to(tmp_path / "theirs")
    assert detect(src).name == case.form
    done = import_checkpoint(src, tmp_path / "ours", settings=case.settings)
    assert done.difference < 1e-4
    assert_same_logits(ours_of(tmp_path / "ours"), theirs, case.form)


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("nanogpt", "gpt2"),
        ("book gpt", "gpt2"),
        ("meta two ranks", "llama"),
        ("book llama scaled", "llama"),
        ("book qwen3", "qwen3"),
        ("tutorial seq2seq", "torch-transformer"),
    ],
)
def test_the_models_of_transformers_and_torch_agree_with_our_references(name, to, tmp_path):
    """The same weights through code that was written elsewhere."""
    case = CASES[name]
    _, src = case.save_to(tmp_path / "theirs")
    import_checkpoint(src, tmp_path / "ours", settings=case.settings)
    export_checkpoint(tmp_path / "ours", tmp_path / "elsewhere", to=to)
    assert verify(src, tmp_path / "elsewhere", settings=case.settings) < 1e-4


IN_TRANSFORMERS = {  # names of the book's Gemma 3 → those of transformers'
    "tok_emb": "model.embed_tokens",
    "out_head": "lm_head",
    "final_norm": "model.norm",
    "blocks.": "model.layers.",
    **{f"att.W_{name}": f"self_attn.{name[0]}_proj" for name in ("query", "key", "value")},
    "att.out_proj": "self_attn.o_proj",
    "att.": "self_attn.",
    "ff.fc1": "mlp.gate_proj",
    "ff.fc2": "mlp.up_proj",
    "ff.fc3": "mlp.down_proj",
    ".scale": ".weight",
}


@torch.no_grad()
def test_the_gemma3_of_transformers_agrees_with_our_reference():
    case = CASES["book gemma3"]
    ours, said = case.build(), SimpleNamespace(**case.config)
    bases = {"full_attention": said.rope_base, "sliding_attention": said.rope_local_base}
    config = Gemma3TextConfig(
        vocab_size=said.vocab_size,
        hidden_size=said.emb_dim,
        intermediate_size=said.hidden_dim,
        num_hidden_layers=len(said.layer_types),
        num_attention_heads=said.n_heads,
        num_key_value_heads=said.n_kv_groups,
        head_dim=said.head_dim,
        sliding_window=said.sliding_window,
        layer_types=said.layer_types,
        query_pre_attn_scalar=said.query_pre_attn_scalar,
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
        },
        tie_word_embeddings=False,
    )
    theirs = Gemma3ForCausalLM(config).eval()
    state = {}
    for name, tensor in ours.state_dict().items():
        for old, new in IN_TRANSFORMERS.items():
            name = name.replace(old, new)
        state[name] = tensor
    theirs.load_state_dict(state)
    ids = torch.randint(101, (2, 17), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(theirs(input_ids=ids).logits, ours(ids), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("torch")])
def test_torch_transformer_comes_back_as_the_same_bits(name, tmp_path):
    case = CASES[name]
    theirs, src = case.save_to(tmp_path / "theirs")
    import_checkpoint(src, tmp_path / "ours", settings=case.settings)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="torch-transformer")
    back = load_file(tmp_path / "back/model.safetensors")
    assert back.keys() == theirs.state_dict().keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in theirs.state_dict().items())
    # What no shape says is written beside the weights: nothing has to be set.
    again = import_checkpoint(tmp_path / "back", tmp_path / "again")
    assert again.assumed == {}
    assert config_of(tmp_path / "again") == config_of(tmp_path / "ours")


def test_what_torch_reads_has_a_card_that_says_so_and_is_compared(tmp_path, monkeypatch):
    case = CASES["torch tied"]
    _, src = case.save_to(tmp_path / "a")
    import_checkpoint(src, tmp_path / "ours", settings=case.settings)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="torch-transformer")
    card = (tmp_path / "back/README.md").read_text()
    assert "library_name: pytorch" in card
    assert "for torch.nn.Transformer" in card

    def spoiled(tensors, dtype):
        for name, tensor in tensors:
            yield (
                name,
                tensor * 1.01 if name.endswith("encoder.layers.0.linear1.weight") else tensor,
            )

    monkeypatch.setattr(conversion.engine.convert, "rounded", spoiled)
    with pytest.raises(ConversionError, match="the logits differ by"):
        export_checkpoint(tmp_path / "ours", tmp_path / "spoiled", to="torch-transformer")
    assert not (tmp_path / "spoiled").exists()


def test_the_order_of_rotary_pairs_matters_to_the_proof(tmp_path, monkeypatch):
    CASES["meta"].save_to(tmp_path / "theirs")
    form = FORMATS["meta-llama"]
    rules = tuple(dataclasses.replace(rule, transform=Same()) for rule in form.rules)
    monkeypatch.setitem(FORMATS, form.name, dataclasses.replace(form, rules=rules))
    assert_refused(tmp_path, "the logits differ by")


@pytest.mark.parametrize("name", ["tutorial seq2seq", "aiayn proj embs prj"])
def test_a_table_of_other_sinusoids_does_not_pass_the_proof(name, tmp_path):
    case = CASES[name]
    theirs = case.build()
    for table in theirs.buffers():
        table.mul_(0.9)
    src = case.save(theirs, case.config, tmp_path)
    with pytest.raises(ConversionError, match="the logits differ by"):
        import_checkpoint(src, tmp_path / "ours", settings=case.settings)


def test_what_is_set_is_believed_by_both_sides_of_the_proof(tmp_path):
    """So the page on conversion says: a wrong number that fits is seen by the original alone."""
    case = CASES["book gpt"]
    theirs, src = case.save_to(tmp_path / "theirs")
    import_checkpoint(src, tmp_path / "ours", settings={"n_heads": 3})
    with pytest.raises(AssertionError):
        assert_same_logits(ours_of(tmp_path / "ours"), theirs, case.form)


def test_safetensors_which_hold_a_tied_table_once_are_read_too(tmp_path):
    theirs = nanogpt(True).build()
    state = theirs.state_dict()
    state.pop("lm_head.weight")
    save_file(state, tmp_path / "nano.safetensors")
    import_checkpoint(tmp_path / "nano.safetensors", tmp_path / "ours", settings={"n_head": 3})
    assert_same_logits(ours_of(tmp_path / "ours"), theirs, "nanogpt")


def test_rounding_is_proven_and_tables_are_not_rounded(tmp_path):
    _, src = CASES["aiayn proj embs prj"].save_to(tmp_path / "theirs")
    done = import_checkpoint(src, tmp_path / "ours", dtype="bfloat16")
    assert done.difference < 1e-4
    tensors = load_file(tmp_path / "ours/model.safetensors").values()
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}


def test_the_dtype_of_the_file_is_kept(tmp_path):
    theirs = nanogpt(False).build().to(torch.bfloat16)
    src = save_nanogpt(theirs, {**nanogpt(False).config}, tmp_path)
    import_checkpoint(src, tmp_path / "ours")
    tensors = load_file(tmp_path / "ours/model.safetensors").values()
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}


# What a file does not say


def test_what_is_not_said_is_asked_for_by_name(tmp_path):
    _, src = CASES["book llama"].save_to(tmp_path / "theirs")
    with pytest.raises(ConversionError, match=r"n_heads.*--set n_heads=32 .*--set rope_base="):
        import_checkpoint(src, tmp_path / "ours")
    for settings, words in (
        ({"n_heads": 5}, "n_heads is 5"),
        ({"n_heads": 0}, "n_heads is 0"),
        ({"n_heads": "six"}, "n_heads is 'six'"),
        ({"heads": 6}, "heads cannot be set.*n_heads"),
        ({"n_heads": 6, "rope_freq": {"factor": 8.0}}, "rope_freq is .*low_freq_factor"),
    ):
        settings = {"rope_base": 50.0, "rope_freq": None, **settings}
        with pytest.raises(ConversionError, match=words):
            import_checkpoint(src, tmp_path / "ours", settings=settings)
    assert not (tmp_path / "ours").exists()


def test_what_was_assumed_is_reported(tmp_path, capsys):
    _, src = CASES["torch post-norm"].save_to(tmp_path / "theirs")
    arguments = ["import", str(src), str(tmp_path / "ours"), "--set", "nhead=3"]
    assert main([*arguments, "--set", "pad_token_id=1"]) == 0
    assert "assumed norm_first=False; assumed activation=relu" in capsys.readouterr().out
    assert main(["verify", str(src), str(tmp_path / "ours"), "--set", "nhead=3"]) == 1
    assert "pad_token_id" in capsys.readouterr().err
    settings = ["--set", "nhead=3", "--set", "pad_token_id=1"]
    assert main(["verify", str(src), str(tmp_path / "ours"), *settings]) == 0


def test_what_the_book_says_of_layers_is_asked_for_assumed_or_refused(tmp_path):
    case = CASES["book gemma3"]
    _, src = case.save_to(tmp_path / "theirs")
    with pytest.raises(ConversionError, match="--set sliding_window=512"):
        import_checkpoint(src, tmp_path / "ours")
    for settings, words in (
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
        ({"layer_types": ["full"] * 3}, "layer_types holds .'full'."),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0: give a number above zero"),
        ({"query_pre_attn_scalar": "256"}, "query_pre_attn_scalar is '256'"),
    ):
        with pytest.raises(ConversionError, match=words):
            import_checkpoint(src, tmp_path / "ours", settings={**case.settings, **settings})
    done = import_checkpoint(src, tmp_path / "ours", settings={"sliding_window": 5})
    assert done.assumed["layer_types"] == "every 6th full_attention"
    assert done.assumed["rope_local_base"] == 10000.0


@pytest.mark.parametrize("word", ["nhead", "=3", "nhead="])
def test_a_setting_without_a_value_is_refused(word, tmp_path, capsys):
    _, src = CASES["torch post-norm"].save_to(tmp_path / "theirs")
    assert main(["import", str(src), str(tmp_path / "ours"), "--set", word]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_scaled_rotation_asks_by_how_much(tmp_path):
    case = CASES["meta scaled"]
    _, src = case.save_to(tmp_path / "theirs")
    params = json.loads((src / "params.json").read_text())
    del params["rope_scaling_factor"]  # as Llama 3.1 and 3.2 are shipped
    (src / "params.json").write_text(json.dumps(params))
    assert_refused(tmp_path, "rope_scaling_factor=8")
    import_checkpoint(src, tmp_path / "ours", settings={"rope_scaling_factor": 8})


def test_the_commands_of_the_chapter_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    CASES["nanogpt"].save_to(tmp_path)  # ckpt.pt
    CASES["book gpt without biases"].save_to(tmp_path)  # model.pth
    _, src = CASES["meta scaled"].save_to(tmp_path / "Llama-3.1-8B")
    params = json.loads((src / "params.json").read_text())
    del params["rope_scaling_factor"]
    (src / "params.json").write_text(json.dumps(params))
    found = commands("tformer", DOCS / "en" / "25-converting.md")
    lines = [words for _, command, *words in found if command == "convert"]
    settings, model = litgpt(0)
    save_litgpt(settings, model.state_dict(), tmp_path / "out/pretrain/final")
    assert len(lines) == 6
    for command in lines:
        # test_conversion_rules.py and tests/runtimes/test_gguf_import.py run the others.
        if "--rules" not in command and not command[1].endswith(".gguf"):
            assert main(command) == 0, capsys.readouterr().err
            shutil.rmtree("ours")
