"""What is peculiar to BART's kin comes along: languages, labels, refusals."""

import pytest
import torch
from safetensors.torch import load_file

from conversion import ConversionError, export_checkpoint, import_checkpoint
from hf_tformer import TformerSeq2SeqForConditionalGeneration
from support import parity_seq2seq as seq2seqs
from support.converting import (
    CASES,
    assert_refused,
    edit_config,
    edit_weights,
    save_ours,
    save_theirs,
)

pytestmark = pytest.mark.usefixtures("warm_python")
TABLES = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))
LANGUAGE = 7  # a token of mBART-50 that every text begins with


def imported(tmp_path):
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    return TformerSeq2SeqForConditionalGeneration.from_pretrained(tmp_path / "ours").eval()


@pytest.mark.parametrize("place", ["generation_config.json", "config.json"])
def test_mbart_writes_the_same_texts_in_the_language_that_it_is_forced_to(tmp_path, place):
    theirs = save_theirs(CASES["mbart"], tmp_path / "theirs")
    theirs.generation_config.forced_bos_token_id = LANGUAGE
    if place == "config.json":  # as old folders do
        (tmp_path / "theirs/generation_config.json").unlink()
        edit_config(tmp_path / "theirs", forced_bos_token_id=LANGUAGE)
    else:
        theirs.generation_config.save_pretrained(tmp_path / "theirs")
    batch = seq2seqs.right_padded_batch()
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    ours, theirs = (
        model.generate(**source, max_new_tokens=5) for model in (imported(tmp_path), theirs)
    )
    assert (ours[:, 1] == LANGUAGE).all()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["mbart", "plbart"])
def test_labels_that_end_with_the_start_token_have_the_same_loss(name, tmp_path):
    theirs = save_theirs(CASES[name], tmp_path / "theirs")
    batch = seq2seqs.even_batch()
    del batch["decoder_input_ids"]
    batch["labels"][:, -1] = theirs.config.decoder_start_token_id
    ours = imported(tmp_path)
    torch.testing.assert_close(ours(**batch).loss, theirs(**batch).loss, rtol=1e-4, atol=1e-5)


def test_pegasus_writes_the_same_texts_though_it_starts_with_padding(tmp_path):
    theirs = save_theirs(CASES["pegasus"], tmp_path / "theirs")
    theirs.generation_config.decoder_start_token_id = seq2seqs.PAD
    theirs.generation_config.save_pretrained(tmp_path / "theirs")
    batch = seq2seqs.right_padded_batch()
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    ours, theirs = (
        model.generate(**source, max_new_tokens=5) for model in (imported(tmp_path), theirs)
    )
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("size", [0, 3])
def test_what_blenderbot_must_not_repeat_goes_there_and_back(size, tmp_path):
    """Old folders say it in config.json, where transformers has a default for it, too."""
    model_class = type(save_theirs(CASES["blenderbot"], tmp_path / "theirs"))
    (tmp_path / "theirs/generation_config.json").unlink()
    edit_config(tmp_path / "theirs", encoder_no_repeat_ngram_size=size)
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", "blenderbot", verify=False)
    habits = [
        model_class.from_pretrained(tmp_path / folder).generation_config
        for folder in ("theirs", "back")
    ]
    assert habits[0].encoder_no_repeat_ngram_size == size
    assert habits[1].encoder_no_repeat_ngram_size == size


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_rounded_table_of_sinusoids_is_known_as_one(dtype, tmp_path):
    model = CASES["pegasus"].build_one(CASES["pegasus"].their_classes, CASES["pegasus"].theirs)
    model.to(dtype).save_pretrained(tmp_path / "theirs")
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert 1e-5 < done.difference < 1e-2  # of the rounding, by which it is not refused
    assert len([part for part in done.left_out if "rounding of its sinusoids" in part]) == 2
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="pegasus")
    theirs, back = (load_file(tmp_path / x / "model.safetensors") for x in ("theirs", "back"))
    assert all(torch.equal(back[name], theirs[name]) for name in TABLES)


def save_with_tables(name, folder, change=lambda table: table):
    """Old files of Marian hold the tables too."""
    tables = save_theirs(CASES[name], folder).state_dict()
    edit_weights(folder, lambda tensors: tensors.update({x: change(tables[x]) for x in TABLES}))


@pytest.mark.parametrize("name", ["marian", "pegasus"])
def test_rounding_leaves_the_sinusoids_that_ours_computes_alone(name, tmp_path):
    save_with_tables(name, tmp_path / "theirs")
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours", dtype="bfloat16")
    assert done.difference < 1e-4
    assert done.compared == "logits"


def test_positions_of_marian_other_than_sinusoids_show_in_the_logits(tmp_path):
    save_with_tables("marian", tmp_path / "theirs", lambda table: table * 1.1)
    assert_refused(tmp_path, "logits differ")


def test_a_file_without_the_table_of_sinusoids_is_read(tmp_path):
    """transformers computes the table, and its older versions did not save it."""
    save_theirs(CASES["pegasus"], tmp_path / "theirs")
    edit_weights(tmp_path / "theirs", lambda tensors: [tensors.pop(name) for name in TABLES])
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference < 1e-4


def test_positions_other_than_sinusoids_are_refused(tmp_path):
    save_theirs(CASES["pegasus"], tmp_path / "theirs")
    edit_weights(tmp_path / "theirs", lambda tensors: tensors[TABLES[1]][3].mul_(1.1))
    assert_refused(tmp_path, "embed_positions", "no sinusoids")


@pytest.mark.parametrize("name", ["mbart", "pegasus", "plbart", "blenderbot"])
def test_stacks_of_two_sizes_are_refused(name, tmp_path):
    save_theirs(CASES[name], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", decoder_ffn_dim=38)
    assert_refused(tmp_path, "decoder_ffn_dim is 38")


LEARNED = {"position_embedding_type": "learned"}
EXPRESSIBLE = {
    "mbart": {**LEARNED, "embedding_norm": True, "norm_position": "pre"},
    "pegasus": {"norm_position": "pre"},
    "plbart": {**LEARNED, "embedding_norm": True},
    "blenderbot": {**LEARNED, "norm_position": "pre"},
}
OTHERS = [
    ("mbart", {"norm_position": "post", "final_norm": True}),
    ("mbart", {"final_norm": False}),
    ("mbart", {"embedding_norm": False}),
    ("mbart", {"position_embedding_type": "sinusoidal"}),
    ("mbart", {"share_encoder_decoder_embeddings": False}),
    ("mbart", {"layer_norm_eps": 1e-6}),
    ("pegasus", {"norm_position": "post", "final_norm": True}),
    ("pegasus", {"sinusoidal_layout": "interleaved"}),
    ("pegasus", {"position_embedding_type": "learned"}),
    ("pegasus", {"embedding_norm": True}),
    ("pegasus", {"attention_scale": 0.5}),
    ("plbart", {"norm_position": "pre", "final_norm": False}),
    ("plbart", {"lm_head_bias": False}),
    ("blenderbot", {"embedding_norm": True}),
    ("blenderbot", {"position_embedding_type": "sinusoidal"}),
    ("blenderbot", {"decoder_start_token_id": None}),
]


@pytest.mark.parametrize(("to", "fields"), OTHERS, ids=str)
def test_an_export_names_the_field_that_cannot_be_expressed(to, fields, tmp_path):
    save_ours(tmp_path / "ours", "tformer_seq2seq", **{**EXPRESSIBLE[to], **fields})
    with pytest.raises(ConversionError, match=next(iter(fields))):
        export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to=to)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("to", EXPRESSIBLE)
def test_a_model_of_ours_in_their_layout_is_exported_and_proven(to, tmp_path):
    save_ours(tmp_path / "ours", "tformer_seq2seq", **EXPRESSIBLE[to])
    assert export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to=to).difference < 1e-4
