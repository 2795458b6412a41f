"""What ExecuTorch cannot serve is refused by field; to say so needs no package of its own."""

import pytest

from conversion import ConversionError, export_checkpoint
from support.families import DECODER, SEQ2SEQ

DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
BY_KIND = {"sliding_attention": {"rope_theta": 100.0}, "full_attention": DYNAMIC}
WINDOWS = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
REFUSED = {
    "bounded scores": (DECODER, {"attn_logit_softcapping": 0.7}, "attn_logit_softcapping is 0.7"),
    "rotations by length": (DECODER, {"rope_parameters": DYNAMIC}, "rope_type is 'dynamic'"),
    "of one kind of layer": (
        DECODER,
        {"rope_parameters": BY_KIND, **WINDOWS},
        "rope_type is 'dynamic'",
    ),
    "of an encoder-decoder": (
        SEQ2SEQ,
        {"position_embedding_type": "rotary", "rope_parameters": DYNAMIC},
        "rope_type is 'dynamic'",
    ),
}


@pytest.mark.parametrize(("family", "fields", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_executorch_cannot_serve_is_refused_by_field(tmp_path, family, fields, sentence):
    backend = "eager" if "attn_logit_softcapping" in fields else "sdpa"
    family.build(backend, **fields).save_pretrained(tmp_path / "ours")
    with pytest.raises(ConversionError, match=sentence):
        export_checkpoint(tmp_path / "ours", tmp_path / "out", to="executorch")
    assert not (tmp_path / "out").exists()
