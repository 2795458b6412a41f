"""What CTranslate2 would misread is refused by name, with the way round; no runtime is needed."""

import pytest

from conversion.engine.errors import ConversionError
from conversion.runtimes.exporting import export_to_runtime
from support.drawn_ctranslate2 import beginning
from support.families import DECODER, ENCODER, SEQ2SEQ

PLAIN_ROPE = {"rope_type": "default", "rope_theta": 500.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 4096,
    "rope_theta": 500.0,
}
MISREAD = {  # a family, which of its beginnings, a field, and what the refusal says
    "window": (DECODER, 0, {"sliding_window": 12}, "no sequence is longer than the window"),
    "no end": (DECODER, 0, {"eos_token_id": None}, "name one in generation_config.json"),
    "activation": (DECODER, 0, {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    "scale of scores": (DECODER, 6, {"attention_scale": 1.0}, "attention_scale is 1.0"),
    "scale of logits": (DECODER, 0, {"logit_scale": 0.5}, "logit_scale is 0.5"),
    "size of heads": (DECODER, 2, {"head_dim": 10}, "head_dim is 10"),
    "part of a rotation": (
        DECODER,
        0,
        {"rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.5}, "head_dim": 8},
        "partial_rotary_factor.* is 0.5",
    ),
    "rotation": (DECODER, 0, {"rope_parameters": YARN}, "rope_type.* is 'yarn'"),
    "length of llama3": (
        DECODER,
        0,
        {"rope_parameters": LLAMA3, "max_position_embeddings": 8192},
        "original_max_position_embeddings.* is 4096",
    ),
    "bounded logits": (DECODER, 5, {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    "bounded scores": (DECODER, 5, {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping"),
    "untied MPT": (DECODER, 12, {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    "two vocabularies": (
        SEQ2SEQ,
        0,
        {"source_vocab_size": 113, "share_encoder_decoder_embeddings": False},
        "source_vocab_size is 113",
    ),
    "rotary encoder-decoder": (
        SEQ2SEQ,
        0,
        {"position_embedding_type": "rotary"},
        "position_embedding_type is 'rotary'",
    ),
    "distances of MPNet": (
        ENCODER,
        0,
        {"score_bias": "relative", "type_vocab_size": 0},
        "score_bias is 'relative', the relative distances of MPNet.*export to onnx",
    ),
    "modern encoder": (ENCODER, 1, {"position_embedding_type": "rotary"}, "'rotary'"),
}


@pytest.mark.parametrize("name", MISREAD)
def test_what_ctranslate2_misreads_is_refused_by_name(tmp_path, name):
    family, place, fields, words = MISREAD[name]
    model_class = family.base_class if family is ENCODER else family.model_class
    model = family.build(model_class=model_class, **{**beginning(family, place), **fields})
    model.save_pretrained(tmp_path / "ours")
    with pytest.raises(ConversionError, match=words):
        export_to_runtime(tmp_path / "ours", tmp_path / "ct2", "ctranslate2")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_an_encoder_with_a_head_is_refused_with_the_way_round(tmp_path):
    ENCODER.build(**beginning(ENCODER, 1)).save_pretrained(tmp_path / "ours")
    with pytest.raises(ConversionError, match="base_model of an encoder"):
        export_to_runtime(tmp_path / "ours", tmp_path / "ct2", "ctranslate2")


def test_a_dtype_that_it_does_not_hold_is_refused_with_those_that_it_does(tmp_path):
    with pytest.raises(ConversionError, match="choose one of float32, float16, bfloat16, int8"):
        export_to_runtime(tmp_path / "ours", tmp_path / "ct2", "ctranslate2", dtype="q8_0")
