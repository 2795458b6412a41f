"""A conversion has the same logits and comes back as the same bits."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from conversion import ConversionError, export_checkpoint, import_checkpoint, verify
from conversion.command import main
from conversion.engine.checkpoints import open_checkpoint, write_checkpoint
from conversion.engine.registry import FORMATS
from conversion.engine.rules import convert, plan
from support import parity_decoder as decoders
from support import parity_mixture as mixtures
from support import parity_seq2seq as seq2seqs
from support.converting import CASES, CLASSES, edit_weights, save_ours, save_theirs
from support.paths import ROOT

pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.fixture
def llama(tmp_path):
    """A folder of theirs that converts, for tests that spoil it."""
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.mark.parametrize("name", CASES)
def test_an_import_has_the_same_logits_and_goes_back_to_the_same_bits(name, tmp_path):
    theirs = save_theirs(CASES[name], tmp_path / "theirs")
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert done.difference < 1e-4
    ours = CLASSES[model_type(tmp_path / "ours")].from_pretrained(tmp_path / "ours").eval()
    batch = (seq2seqs if theirs.config.is_encoder_decoder else decoders).even_batch()
    torch.testing.assert_close(ours(**batch).logits, theirs(**batch).logits, rtol=1e-4, atol=1e-5)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to=theirs.config.model_type)
    _, report = type(theirs).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(report.values()), report
    assert_same_bits(theirs.config, *(read_all(tmp_path / name) for name in ("theirs", "back")))


def model_type(folder):
    return json.loads((folder / "config.json").read_text())["model_type"]


def read_all(folder):
    return load_file(folder / "model.safetensors")


def assert_same_bits(config, theirs, back):
    """All but what no model reads: two rows of positions, a shared table where nothing is tied."""
    if config.model_type in ("bart", "mbart", "plbart", "mvp", "opt", "biogpt"):
        for name in (name for name in theirs if name.endswith("embed_positions.weight")):
            theirs[name][:2] = 0
    if not config.tie_word_embeddings:
        for tensors in (theirs, back):
            tensors.pop("model.shared.weight", None)
    assert theirs.keys() == back.keys()
    for name, tensor in theirs.items():
        assert torch.equal(tensor, back[name]), name


@pytest.mark.parametrize("rope_type", sorted(decoders.ROPE_TYPES))
def test_every_rotary_type_of_llama_converts_both_ways(rope_type, tmp_path):
    rope = {"rope_type": rope_type, "rope_theta": 100.0, **decoders.ROPE_TYPES[rope_type]}
    case = decoders.llama(max_position_embeddings=32, rope_parameters=rope)
    theirs = save_theirs(case, tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="llama")
    back = type(theirs).from_pretrained(tmp_path / "back")
    assert back.config.rope_parameters == theirs.config.rope_parameters


@pytest.mark.parametrize(
    "name",
    [
        "llama grouped-query",
        "olmo3",
        "gemma2",
        "exaone4 windows",
        "smollm3 windows",
        "gpt2",
        "opt",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "codegen",
        "ctrl",
        "openai-gpt",
        "persimmon",
        "mvp",
        "phi",
        "falcon 7b",
        "falcon 11b",
        "falcon 40b",
        "cohere2",
        "granite biases",
        "hyperclovax biases",
        "cwm",
        "ministral windows",
        "jais2",
        "vaultgemma",
        "marian",
        "bart",
        "mbart",
        "pegasus",
        "plbart",
        "blenderbot",
        "bloom",
        "nanochat",
        "mpt",
        "xglm",
        "m2m_100",
        "t5",
        "t5 flan",
        "mt5",
        "umt5",
    ],
)
def test_the_configuration_comes_back_as_it_was(name, tmp_path):
    theirs = save_theirs(CASES[name], tmp_path / "theirs").config
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", theirs.model_type, verify=False)
    back = type(theirs).from_pretrained(tmp_path / "back")
    # generation_config.json names the first two.
    named_elsewhere = {
        "forced_eos_token_id",
        "encoder_no_repeat_ngram_size",
        "transformers_version",
    }
    left, right = theirs.to_dict(), back.to_dict()
    assert {k: v for k, v in left.items() if k not in named_elsewhere} == {
        k: v for k, v in right.items() if k in left and k not in named_elsewhere
    }


def test_stablelm_is_told_that_whole_heads_turn(tmp_path):
    """It would turn a quarter of them where nothing is said."""
    save_ours(tmp_path / "ours", norm_type="layernorm", hidden_size=16)
    assert export_checkpoint(tmp_path / "ours", tmp_path / "theirs", "stablelm").difference < 1e-4
    assert (
        json.loads((tmp_path / "theirs/config.json").read_text())["rope_parameters"][
            "partial_rotary_factor"
        ]
        == 1.0
    )


def test_rounding_to_another_dtype_is_proven_too(tmp_path, llama):
    done = import_checkpoint(llama, tmp_path / "ours", dtype="bfloat16")
    assert done.difference < 1e-4
    tensors = read_all(tmp_path / "ours")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "ours/config.json").read_text())["dtype"] == "bfloat16"


def test_code_tokenizer_and_habits_of_generation_come_along(tmp_path, llama):
    (llama / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    (llama / "generation_config.json").write_text('{"temperature": 0.5, "do_sample": true}')
    (llama / "training_args.bin").write_bytes(b"no tokenizer")
    import_checkpoint(llama, tmp_path / "ours")
    for name in ("tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "ours" / name).read_bytes() == (llama / name).read_bytes()
    assert (tmp_path / "ours/modeling_decoder.py").is_file()
    assert not (tmp_path / "ours/training_args.bin").exists()


def test_sharded_and_pickled_weights_are_read_too(tmp_path):
    model = save_theirs(CASES["gpt2"], tmp_path / "whole")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    (tmp_path / "pickled").mkdir()
    model.config.save_pretrained(tmp_path / "pickled")
    # As old checkpoints are: the base model's names, tied tensors twice, the causal mask.
    state = {name.removeprefix("transformer."): t for name, t in model.state_dict().items()}
    state["h.0.attn.bias"] = torch.ones(1, 1, 13, 13, dtype=torch.bool)
    torch.save(state, tmp_path / "pickled/pytorch_model.bin")
    for name in ("whole", "sharded", "pickled"):
        import_checkpoint(tmp_path / name, tmp_path / f"ours of {name}", verify=name != "pickled")
        assert (
            read_all(tmp_path / f"ours of {name}").keys()
            == read_all(tmp_path / "ours of whole").keys()
        )
        verify(tmp_path / "ours of whole", tmp_path / f"ours of {name}")


def test_old_files_of_neox_hold_masks_frequencies_and_a_head_of_another_name(tmp_path):
    """As those of Pythia; transformers writes that name still."""
    model = save_theirs(CASES["gpt_neox"], tmp_path / "theirs")
    state = model.state_dict()
    state["embed_out.weight"] = state.pop("lm_head.weight")
    for layer in (f"gpt_neox.layers.{index}.attention" for index in range(3)):
        state[f"{layer}.bias"] = torch.ones(1, 1, 13, 13, dtype=torch.bool)
        state[f"{layer}.masked_bias"] = torch.tensor(-1e9)
        state[f"{layer}.rotary_emb.inv_freq"] = torch.ones(2)
    (tmp_path / "old").mkdir()
    model.config.save_pretrained(tmp_path / "old")
    torch.save(state, tmp_path / "old/pytorch_model.bin")
    import_checkpoint(tmp_path / "old", tmp_path / "ours", verify=False)
    verify(tmp_path / "theirs", tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="gpt_neox")
    assert "embed_out.weight" in read_all(tmp_path / "back")


def test_what_is_written_in_shards_is_read_as_one(tmp_path):
    tensors = {f"part {i}": torch.full((7,), float(i)) for i in range(5)}
    write_checkpoint(tmp_path, iter(tensors.items()), shard_bytes=60)
    assert len(list(tmp_path.glob("model-*-of-00003.safetensors"))) == 3
    checkpoint = open_checkpoint(tmp_path)
    assert all(torch.equal(checkpoint.read(name), tensors[name]) for name in tensors)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ConversionError, match="00002-of-00003"):
        open_checkpoint(tmp_path)


def test_the_command_converts_both_ways_and_verifies(tmp_path, llama, capsys):
    ours, back = str(tmp_path / "ours"), str(tmp_path / "back")
    assert main(["import", str(llama), ours, "--format", "llama"]) == 0
    assert "largest difference of the logits" in capsys.readouterr().out
    assert main(["export", ours, back, "--to", "llama", "--no-verify"]) == 0
    assert "not verified" in capsys.readouterr().out
    assert main(["verify", str(llama), back]) == 0
    assert main(["formats"]) == 0
    assert "OPUS-MT" in capsys.readouterr().out


def test_a_failure_of_the_command_is_one_sentence(tmp_path):
    arguments = ["import", str(tmp_path / "nowhere"), str(tmp_path / "ours")]
    command = [sys.executable, "-m", "conversion", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert "nowhere does not exist" in result.stderr


def test_a_base_model_of_bart_has_no_bias_of_its_logits(tmp_path):
    """facebook/bart-large is such a folder."""
    model = save_theirs(CASES["bart"], tmp_path / "theirs")
    model.model.save_pretrained(tmp_path / "base")
    import_checkpoint(tmp_path / "base", tmp_path / "ours")
    assert not read_all(tmp_path / "ours")["lm_head.bias"].any()


def test_only_what_one_rule_needs_is_read_at_a_time():
    reads = []

    def read(name):
        reads.append(name)
        return torch.zeros(30, 90) if name.endswith("c_attn.weight") else torch.zeros(30)

    names = [f"model.layers.7.self_attn.{x}_proj.weight" for x in "qkv"]
    tensors = convert(plan(FORMATS["gpt2"].rules, names), read, config=None, to_ours=True)
    assert reads == []
    assert [(name, tensor.shape) for name, tensor in tensors] == [(n, (30, 30)) for n in names]
    assert reads == ["transformer.h.7.attn.c_attn.weight"]


@pytest.fixture
def format_of_the_guide():
    """What CONTRIBUTING.md shows under "A new format of conversion", run as it stands."""
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    section = guide.split("## A new format of conversion")[1].split("\n## ")[0]
    code = section.split("```python\n")[1].split("```")[0]
    known = dict(FORMATS)
    exec(compile(code, "CONTRIBUTING.md", "exec"), {})
    yield
    FORMATS.clear()
    FORMATS.update(known)


def test_the_format_that_the_guide_adds_converts_both_ways(tmp_path, format_of_the_guide):
    theirs = save_theirs(decoders.CASES["stablelm partial rotation"], tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="stablelm")
    assert_same_bits(theirs.config, *(read_all(tmp_path / name) for name in ("theirs", "back")))


def test_a_layer_that_drafts_tokens_is_left_out_and_said(tmp_path):
    """As GLM-4.5 is released: one layer more than config.json counts."""
    save_theirs(mixtures.CASES["glm4_moe"], tmp_path / "theirs")

    def add_draft(tensors):
        last = [name for name in tensors if name.startswith("model.layers.2.")]
        drafts = {name.replace("layers.2.", "layers.3."): tensors[name].clone() for name in last}
        tensors.update(drafts, **{"model.layers.3.eh_proj.weight": tensors[last[0]].clone()})

    edit_weights(tmp_path / "theirs", add_draft)
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert done.difference < 1e-4
    (said,) = done.left_out
    assert "model.layers.3." in said
    assert "more: a layer that drafts tokens" in said
    assert len(said) < 400


def test_the_drafting_layer_of_mellum_is_left_out_by_its_name(tmp_path):
    save_theirs(mixtures.CASES["mellum windows"], tmp_path / "theirs")
    edit_weights(
        tmp_path / "theirs", lambda tensors: tensors.update({"mtp.fc.weight": torch.ones(2)})
    )
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert "mtp.fc.weight" in done.left_out[0]
