"""The encoder of an encoder-decoder is opened alone, embeds texts, and is saved alone."""

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    pipeline,
)

import hf_tformer
from conversion import ConversionError, export_checkpoint
from hf_tformer.opening import OpeningError, open_model
from hf_tformer.publishing.card import about, read_config
from support.families import SEQ2SEQ, pad, random_rows
from support.leaves import ARCHITECTURES
from support.listening import listening
from support.word_tokenizer import TEXT, tokenizer_of_words

pytestmark = pytest.mark.usefixtures("warm_python")

ENCODER = hf_tformer.TformerSeq2SeqEncoderModel
SEPARATE = {"share_encoder_decoder_embeddings": False}
TABLES = {
    "one table": {},
    "one table, another head": {"tie_word_embeddings": False},
    "a table each": SEPARATE,
    "vocabularies of their own": {**SEPARATE, "source_vocab_size": 53},
    **ARCHITECTURES["seq2seq"],
}
MARIAN = {
    "sinusoidal_layout": "halves",
    "hidden_act": "swish",
    "lm_head_bias": True,
    "num_key_value_heads": None,
    "head_dim": None,
}
IDS, MASK = pad(random_rows([5, 9, 1], vocab_size=53), "right")


def opened(folder):
    model, report = AutoModelForTextEncoding.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert type(model) is ENCODER
    return model.eval()


def vectors(model):
    return model(IDS, MASK).last_hidden_state


@pytest.mark.parametrize("tables", TABLES)
@pytest.mark.parametrize("saved", ["the head", "the model"])
@torch.no_grad()
def test_the_encoder_of_a_folder_of_both_gives_its_vectors(tables, saved, tmp_path):
    whole = SEQ2SEQ.build(**TABLES[tables])
    expected = vectors(whole.get_encoder())
    (whole if saved == "the head" else whole.model).save_pretrained(tmp_path / "whole")
    with listening() as said:
        encoder = opened(tmp_path / "whole")
    assert not said
    assert torch.equal(vectors(encoder), expected)
    encoder.save_pretrained(tmp_path / "alone")
    alone = opened(tmp_path / "alone")
    assert torch.equal(vectors(alone), expected)
    assert alone.num_parameters() == whole.get_encoder().num_parameters()
    alone.resize_token_embeddings(103, mean_resizing=False)
    alone.save_pretrained(tmp_path / "longer")
    longer = opened(tmp_path / "longer")
    assert longer.config.vocab_size == longer.get_input_embeddings().num_embeddings == 103
    assert torch.equal(vectors(longer), expected)


def test_a_folder_says_what_automodel_opens(tmp_path):
    whole = SEQ2SEQ.build()
    whole.save_pretrained(tmp_path / "whole")
    opened(tmp_path / "whole").save_pretrained(tmp_path / "alone")
    assert type(AutoModel.from_pretrained(tmp_path / "whole")) is SEQ2SEQ.base_class
    assert type(AutoModel.from_pretrained(tmp_path / "alone")) is ENCODER
    sizes = {"hidden_size": 16, "intermediate_size": 16, "vocab_size": 11}
    config = AutoConfig.for_model("tformer_seq2seq", **sizes)
    assert type(AutoModel.from_config(config)) is SEQ2SEQ.base_class


def test_outputs_and_gradients_are_those_of_the_encoder():
    whole = SEQ2SEQ.build("eager")
    encoder = ENCODER(whole.config)
    encoder.load_state_dict(
        {n: x for n, x in whole.model.state_dict().items() if n in encoder.state_dict()}
    )
    wanted = {"output_hidden_states": True, "output_attentions": True}
    output = encoder.eval()(IDS, MASK, **wanted)
    expected = whole.get_encoder()(IDS, MASK, **wanted)
    assert len(output.hidden_states) == len(output.attentions) + 1 == 2
    for found, state in zip(output.to_tuple(), expected.to_tuple(), strict=True):
        torch.testing.assert_close(found, state)
    as_tuple = encoder(IDS, MASK, return_dict=False)
    assert isinstance(as_tuple, tuple)
    encoder.train().gradient_checkpointing_enable()
    with listening() as said:
        vectors(encoder).sum().backward()
    assert not said
    assert encoder.shared.weight.grad is not None


def test_the_folder_of_an_encoder_is_checked_renewed_and_described(tmp_path):
    ENCODER(SEQ2SEQ.config()).save_pretrained(tmp_path)
    assert not [f for f in hf_tformer.check(tmp_path) if f.verdict == "fail"]
    assert not hf_tformer.refresh(tmp_path).changes
    said = about(read_config(tmp_path))
    assert said == (
        "The encoder of an encoder-decoder",
        "feature-extraction",
        "AutoModelForTextEncoding",
    )


def test_what_needs_a_decoder_refuses_the_folder_of_an_encoder(tmp_path):
    config = SEQ2SEQ.config(**MARIAN)
    ENCODER(config).save_pretrained(tmp_path / "alone")
    with pytest.raises(OpeningError, match="saved without its decoder"):
        open_model(str(tmp_path / "alone"), writes=False)
    with pytest.raises(ConversionError, match="decoder"):
        export_checkpoint(tmp_path / "alone", tmp_path / "theirs", to="marian")
    assert not (tmp_path / "theirs").exists()


def test_the_pipeline_for_features_takes_the_folder_of_an_encoder(tmp_path):
    encoder = ENCODER(SEQ2SEQ.config()).eval()
    encoder.save_pretrained(tmp_path)
    tokenizer = tokenizer_of_words()
    tokenizer.save_pretrained(tmp_path)
    with listening() as said:
        found = pipeline("feature-extraction", model=str(tmp_path))(TEXT, return_tensors=True)
    assert not said
    expected = encoder(**tokenizer(TEXT, return_tensors="pt")).last_hidden_state
    torch.testing.assert_close(found, expected)
