"""Folders to convert, ways to spoil them, and what a refusal is."""

import json

import pytest
from safetensors.torch import load_file, save_file

import hf_tformer
from conversion import ConversionError, import_checkpoint
from support import parity_decoder as decoders
from support import parity_mixture as mixtures
from support import parity_seq2seq as seq2seqs
from support.parity import randomise

CASES = {**decoders.CASES, **mixtures.CASES, **seq2seqs.CASES}
CLASSES = {
    "tformer_decoder": hf_tformer.TformerDecoderForCausalLM,
    "tformer_mixture": hf_tformer.TformerMixtureForCausalLM,
    "tformer_seq2seq": hf_tformer.TformerSeq2SeqForConditionalGeneration,
}


def save_theirs(case, folder):
    model = randomise(case.build_one(case.their_classes, case.theirs)).eval()
    model.save_pretrained(folder)
    return model


def save_ours(folder, family="tformer_decoder", **fields):
    model_class = CLASSES[family]
    model_class(model_class.config_class(**{**OURS[family], **fields})).save_pretrained(folder)


TINY = {"vocab_size": 23, "hidden_size": 12, "intermediate_size": 10, "num_attention_heads": 2}
OURS = {
    "tformer_decoder": {**TINY, "num_hidden_layers": 2, "num_key_value_heads": 2},
    "tformer_mixture": {**TINY, "num_hidden_layers": 2, "num_key_value_heads": 2},
    "tformer_seq2seq": {
        **TINY,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "sinusoidal_layout": "halves",
        "lm_head_bias": True,
    },
}


def edit_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def edit_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def assert_refused(tmp_path, *words, run=None):
    """The conversion raises with these words and leaves what was there before, nothing else."""
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ConversionError) as caught:
        (run or import_checkpoint)(tmp_path / "theirs", tmp_path / "ours")
    assert all(word in str(caught.value) for word in words), caught.value
    assert sorted(tmp_path.iterdir()) == before
