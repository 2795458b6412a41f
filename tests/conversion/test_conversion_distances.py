"""BLOOM, MPT, M2M100, XGLM, nanochat: how they tell places apart, their texts, old files."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from conversion import export_checkpoint, import_checkpoint
from conversion.formats.decoders.bloom import GELU
from hf_tformer.model.position_bias import slopes_of
from hf_tformer.model.positions import FairseqPositions
from support import parity_decoder as decoders
from support import parity_seq2seq as seq2seqs
from support.converting import (
    CASES,
    CLASSES,
    assert_refused,
    edit_config,
    edit_weights,
    save_ours,
    save_theirs,
)

pytestmark = pytest.mark.usefixtures("warm_python")
LANGUAGE = 7  # a token that every text of NLLB begins with


@pytest.mark.parametrize("heads", range(1, 41))
def test_the_slopes_are_those_of_bloom_and_mpt(heads):
    """Two formulas of theirs that look different, also between the powers of two."""
    bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    mpt = -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
    for slopes in (bloom, mpt):
        torch.testing.assert_close(torch.tensor(slopes_of(heads)), slopes, rtol=1e-6, atol=0)


@pytest.mark.parametrize("pad", [0, 1, 5])
@pytest.mark.parametrize("width", [4, 6, 30, 512])
def test_fairseq_positions_are_those_of_m2m100(width, pad):
    """At a place of 1000, float32 knows an angle to about 1e-4."""
    table = M2M100SinusoidalPositionalEmbedding.get_embedding(pad + 1001, width, pad)[pad + 1 :]
    ours = FairseqPositions(width, pad)(torch.zeros(1, 1000, width), torch.arange(1000)[None])[0]
    torch.testing.assert_close(ours, table, rtol=0, atol=2e-4)


def imported(tmp_path):
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    family = AutoConfig.from_pretrained(tmp_path / "ours").model_type
    return CLASSES[family].from_pretrained(tmp_path / "ours").eval()


def assert_same_texts(ours, theirs, **how):
    is_pair = theirs.config.is_encoder_decoder
    batch = seq2seqs.right_padded_batch() if is_pair else decoders.left_padded_batch()
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    texts = [model.generate(**source, max_new_tokens=8, **how) for model in (ours, theirs)]
    assert torch.equal(*texts)
    return texts[0]


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
@pytest.mark.parametrize("name", ["bloom", "mpt", "xglm", "m2m_100", "nanochat"])
def test_padded_texts_are_continued_as_they_continue_them(name, how, tmp_path):
    theirs = save_theirs(CASES[name], tmp_path / "theirs")
    theirs.config.use_cache = theirs.generation_config.use_cache = True  # MPT's default is not to
    pad = seq2seqs.PAD if name == "m2m_100" else 1
    assert_same_texts(imported(tmp_path), theirs, pad_token_id=pad, use_cache=True, **how)


@pytest.mark.parametrize("place", ["generation_config.json", "config.json", "the call"])
def test_nllb_writes_in_the_language_that_it_is_forced_to(place, tmp_path):
    """It starts with the token that ends a text."""
    theirs = save_theirs(CASES["m2m_100"], tmp_path / "theirs")
    habits = {"decoder_start_token_id": seq2seqs.END, "forced_bos_token_id": LANGUAGE}
    edit_config(tmp_path / "theirs", decoder_start_token_id=seq2seqs.END)
    theirs.generation_config.update(**habits)
    if place == "generation_config.json":
        theirs.generation_config.save_pretrained(tmp_path / "theirs")
    else:  # as in old folders
        (tmp_path / "theirs/generation_config.json").unlink()
        edit_config(tmp_path / "theirs", **(habits if place == "config.json" else {}))
    ours = imported(tmp_path)
    assert ours.config.decoder_start_token_id == seq2seqs.END
    told = {"forced_bos_token_id": LANGUAGE} if place == "the call" else {}
    texts = assert_same_texts(ours, theirs, **told)
    assert (texts[:, 0] == seq2seqs.END).all()
    assert (texts[:, 1] == LANGUAGE).all()
    export_checkpoint(tmp_path / "ours", tmp_path / "back", "m2m_100", verify=False)
    back = type(theirs).from_pretrained(tmp_path / "back")
    assert_same_texts(back, theirs, **told)


@pytest.mark.parametrize("name", ["m2m_100", "xglm"])
def test_old_files_that_hold_the_sinusoids_are_read(name, tmp_path):
    theirs = save_theirs(CASES[name], tmp_path / "theirs")
    tables = {x: t for x, t in theirs.named_buffers() if x.endswith("embed_positions.weights")}
    assert tables
    copies = {x: table.clone() for x, table in tables.items()}
    edit_weights(tmp_path / "theirs", lambda tensors: tensors.update(copies))
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference < 1e-4


def test_the_releases_of_bloom_say_n_embed_and_name_no_base_model(tmp_path):
    save_theirs(CASES["bloom"], tmp_path / "theirs")
    width = AutoConfig.from_pretrained(tmp_path / "theirs").hidden_size
    edit_config(tmp_path / "theirs", n_embed=width, hidden_size=64, seq_length=77, offset_alibi=100)
    path = tmp_path / "theirs/model.safetensors"
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference < 1e-4
    assert AutoConfig.from_pretrained(tmp_path / "ours").max_position_embeddings == 77
    export_checkpoint(tmp_path / "ours", tmp_path / "back", "bloom", verify=False)
    assert AutoConfig.from_pretrained(tmp_path / "back").seq_length == 77


MPT_ATTENTION = {
    "attn_type": "multiquery_attention",
    "alibi": False,
    "alibi_bias_max": 16,
    "clip_qkv": 6.0,
    "prefix_lm": True,
    "qk_ln": True,
    "attn_uses_sequence_id": True,
}


@pytest.mark.parametrize("field", MPT_ATTENTION)
def test_each_other_attention_of_mpt_is_refused_by_name(field, tmp_path):
    save_theirs(CASES["mpt"], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", attn_config={field: MPT_ATTENTION[field]})
    assert_refused(tmp_path, f"{field} is {MPT_ATTENTION[field]!r}", "hf_tformer cannot express")


WITHOUT_PLACES = {
    "position_embedding_type": "none",
    "score_bias": "alibi",
    "mlp_type": "plain",
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "intermediate_size": 48,
}
MPT = {**WITHOUT_PLACES, "norm_type": "layernorm_unbiased", "hidden_act": "gelu"}
BLOOM = {**WITHOUT_PLACES, **dict.fromkeys(decoders.BIASES, True), "norm_type": "layernorm"}
BLOOM["embedding_norm"] = True
FAIRSEQ = {"position_embedding_type": "sinusoidal", "sinusoidal_layout": "fairseq"}
XGLM = {**BLOOM, **FAIRSEQ, "score_bias": None, "embedding_norm": False, "pad_token_id": 1}
OURS = [
    ("mpt", MPT),
    ("mpt", {**MPT, "attention_scale": 1, "max_position_embeddings": 7}),
    *(("bloom", {**BLOOM, "hidden_act": name}) for name in GELU),
    ("nanochat", {"embedding_norm": True, "qk_norm": True, "mlp_type": "plain"}),
    ("xglm", {**XGLM, "scale_embedding": True, "tie_word_embeddings": False}),
    ("m2m_100", {**FAIRSEQ, "norm_position": "pre", "lm_head_bias": False}),
]


@pytest.mark.parametrize(("to", "fields"), OURS, ids=str)
def test_a_model_of_ours_in_their_layout_is_exported_and_proven(to, fields, tmp_path):
    family = "tformer_seq2seq" if to == "m2m_100" else "tformer_decoder"
    save_ours(tmp_path / "ours", family, **fields)
    assert export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to=to).difference < 1e-4
