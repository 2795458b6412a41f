"""Special tokens: ids that mean padding, ids that no token has, and ids that nobody gave."""

import json
import runpy

import pytest
import torch
import transformers

from conversion import export_checkpoint, import_checkpoint
from support.converting import CASES, assert_refused, edit_config, save_theirs
from support.converting_encoders import save_theirs as save_encoder
from support.parity import randomise
from support.paths import ROOT

IDS = ("pad_token_id", "bos_token_id", "eos_token_id")


def read_json(path):
    return json.loads(path.read_text())


def test_a_layout_of_ones_own_has_no_ids_that_its_author_did_not_give(tmp_path):
    """With the default eos_token_id=2 a model that prefers token 2 would stop after one token."""
    guide = (ROOT / "CONTRIBUTING.md").read_text().split("## A layout of your own")[1]
    (tmp_path / "mine.py").write_text(guide.split("```python\n")[1].split("```")[0])
    model = runpy.run_path(str(tmp_path / "mine.py"))["reference"]()
    with torch.no_grad():
        model.head.bias[2] = 9
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    import_checkpoint(tmp_path / "weights.pt", tmp_path / "ours", rules=tmp_path / "mine.py")
    for file in ("config.json", "generation_config.json"):
        settings = read_json(tmp_path / "ours" / file)
        assert all(settings.get(name) is None for name in IDS)
    ours = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    prompt = torch.tensor([[3, 4, 5]])
    assert ours.generate(prompt, max_new_tokens=5, do_sample=False).shape == (1, 8)


def test_a_start_token_that_is_the_padding_is_refused_for_m2m100(tmp_path):
    """M2M100 gives padding no position, so all later tokens would move by one."""
    save_theirs(CASES["m2m_100"], tmp_path / "theirs")
    pad = read_json(tmp_path / "theirs" / "config.json")["pad_token_id"]
    edit_config(tmp_path / "theirs", decoder_start_token_id=pad)
    assert_refused(tmp_path, f"decoder_start_token_id is {pad}", "pad_token_id", "M2M100")


def test_a_start_token_that_becomes_the_padding_is_refused_for_m2m100(tmp_path):
    save_theirs(CASES["m2m_100"], tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    pad = read_json(tmp_path / "ours" / "config.json")["pad_token_id"]
    edit_config(tmp_path / "ours", decoder_start_token_id=pad)

    def export(*_):
        return export_checkpoint(tmp_path / "ours", tmp_path / "back", to="m2m_100")

    assert_refused(tmp_path, f"decoder_start_token_id is {pad}", "M2M100", run=export)


@pytest.mark.parametrize("name", ["marian", "bart", "t5", "m2m_100"])
def test_a_proof_begins_its_outputs_with_the_start_token(name, tmp_path):
    from conversion.engine.proof import padded_batch
    from conversion.engine.registry import side_of

    label = next(label for label in CASES if label.split()[0] == name)
    save_theirs(CASES[label], tmp_path / "theirs")
    reader = side_of(tmp_path / "theirs").load(tmp_path / "theirs")
    start = reader.model.config.decoder_start_token_id
    assert start is not None
    assert set(padded_batch(reader)["decoder_input_ids"][:, 0].tolist()) == {start}


def test_ids_beyond_the_vocabulary_are_dropped_with_a_sentence(tmp_path):
    """GLM's default ids are beyond a small vocabulary, where transformers runs it all the same."""
    save_theirs(CASES["glm"], tmp_path / "theirs")
    vocab_size = read_json(tmp_path / "theirs" / "config.json")["vocab_size"]
    edit_config(tmp_path / "theirs", eos_token_id=[5, 151329], bos_token_id=vocab_size)
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert done.difference < 1e-4
    settings = read_json(tmp_path / "ours" / "config.json")
    assert (settings["eos_token_id"], settings["bos_token_id"]) == ([5], None)
    assert done.left_out == (
        f"bos_token_id {vocab_size}: beyond the vocabulary of {vocab_size}, no token has it",
        f"eos_token_id 151329: beyond the vocabulary of {vocab_size}, no token has it",
    )


def test_an_encoder_drops_its_default_mask_token_beyond_the_vocabulary(tmp_path):
    save_encoder("eurobert ForMaskedLM", tmp_path / "theirs")
    edit_config(tmp_path / "theirs", mask_token_id=128002)
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert "mask_token_id 128002" in done.left_out[0]


@pytest.mark.parametrize("name", ["pegasus", "marian"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_rounding_of_stored_sinusoids_is_part_of_the_difference(name, dtype, tmp_path):
    """transformers reads the rounded table of a file in half precision; ours computes it."""
    label = next(label for label in CASES if label.split()[0] == name)
    theirs = CASES[label].build_one(CASES[label].their_classes, CASES[label].theirs)
    tables = {n: p.clone() for n, p in theirs.named_parameters() if "embed_positions" in n}
    randomise(theirs)
    with torch.no_grad():
        for table, exact in tables.items():
            theirs.get_parameter(table).copy_(exact)
    theirs.to(dtype).save_pretrained(tmp_path / "theirs")
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    actual = half_as_float32_difference(tmp_path)
    assert done.difference == pytest.approx(actual, rel=0.5, abs=1e-5)
    sentences = [part for part in done.left_out if "rounding of its sinusoids" in part]
    assert len(sentences) == (2 if name == "pegasus" else 0)


def half_as_float32_difference(folder):
    models = [
        transformers.AutoModelForSeq2SeqLM.from_pretrained(folder / side, dtype=torch.float32)
        for side in ("theirs", "ours")
    ]
    ids = torch.arange(5, 17)[None]
    logits = [model.eval()(input_ids=ids, decoder_input_ids=ids).logits for model in models]
    return (logits[0] - logits[1]).abs().max().item()
