"""What few formats have a word for comes back from theirs as it was, or is refused by its name."""

from copy import deepcopy

import pytest

from conversion import ConversionError
from conversion.engine.format import DECODER, meaning
from conversion.engine.registry import FORMATS
from conversion.engine.translation import translate
from hf_tformer import TformerDecoderConfig
from hf_tformer.model.layer_types import layer_type
from support import parity_decoder as decoders
from support import plain

WINDOWS = {"layer_types": decoders.MIXED, "sliding_window": decoders.WINDOW}
RARE = {
    "norm_type": ["rmsnorm", "rmsnorm_offset", "layernorm_unbiased"],
    "norm_position": ["pre", "post", "inside", "both"],
    "parallel_residual": ["own", "shared"],
    "residual_multiplier": [0.5],
    "qk_norm": [False, True, "all"],
    "scale_embedding": [False, True, 3.0],
    "attention_scale": [0.3, 7**-0.5],
    "no_rope_layers": [[1, 0, 1], [0, 0, 0], [1, 1, 1]],
    "score_bias": ["alibi"],
    "attn_logit_softcapping": [1.5],
    "final_logit_softcapping": [1.5, 3],
    "rope_parameters": [decoders.ROPES, decoders.ROPE["rope_parameters"]],
    "layer_types": [decoders.MIXED, decoders.MIXED[:1] * 3],
}
# What rotations by kind, or kinds of layers, need beside them.
NEEDED = {"rope_parameters": WINDOWS, "layer_types": WINDOWS}
# EXAONE 4 says by its windows which layers turn.
TOLD_BY = {"layer_types": ("no_rope_layers",)}
SETTINGS = [(name, value) for name, values in RARE.items() for value in values]


def cases():
    """Of each format that exports decoders: a configuration of ours that it can express."""
    for case in decoders.CASES.values():
        config = case.their_classes[0](**deepcopy({**case.both, **case.theirs}))
        yield config.model_type, config
    for case in plain.CASES.values():
        if FORMATS[case.form].our_classes == DECODER:
            yield case.form, FORMATS[case.form].make_config(case.config, None)


EXPRESSIBLE = {
    name: FORMATS[name].config_to_ours(config)
    for name, config in cases()
    if FORMATS[name].config_to_theirs
}


def test_every_format_of_decoders_is_asked():
    assert EXPRESSIBLE.keys() == {
        name
        for name, form in FORMATS.items()
        if form.our_classes == DECODER and form.config_to_theirs
    }


def said(config, name):
    """The value of a field; of rotations, that of each layer."""
    if name != "rope_parameters" or config.position_embedding_type != "rotary":
        return meaning(config, name)
    kinds = (layer_type(config, index) for index in range(config.num_hidden_layers))
    ropes = (config.rope_parameters.get(kind, config.rope_parameters) for kind in kinds)
    return [{"partial_rotary_factor": 1.0, **rope} for rope in ropes]


@pytest.mark.parametrize("form", EXPRESSIBLE)
def test_a_value_comes_back_from_a_format_or_is_refused_by_its_name(form):
    for name, value in SETTINGS:
        fields = {**EXPRESSIBLE[form], **NEEDED.get(name, {}), name: value}
        try:
            ours = TformerDecoderConfig(**deepcopy(fields))
        except ValueError:  # such a model there is not
            continue
        names = (name, *NEEDED.get(name, ()), *TOLD_BY.get(name, ()))
        try:
            theirs = translate(ours, FORMATS[form], to_ours=False, dtype=None)
        except ConversionError as error:
            refusal = str(error)
        else:
            back = translate(theirs, FORMATS[form], to_ours=True, dtype=None)
            assert said(back, name) == said(ours, name), name
            continue
        assert any(word in refusal for word in names), refusal
