"""Exports keep their shapes open: what tracing saw is not all that the graph can do."""

import pytest
import torch
from families import DECODER, ENCODER, SEQ2SEQ, WRITERS, pad, random_rows
from leaves import ARCHITECTURES, LEAVES, WINDOWS, backend_of, each
from torch.export import Dim

import hf_tformer

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
SEEN = [7, 4, 5]
OTHERS = (
    [11, 3],
    [4, 9, 2, 6, 5],
    [9],
    [1, 1],
    [1],
)  # one text, one token: sizes that may be fixed
KINDS = {
    **{kind: {"position_embedding_type": kind} for kind in ("rotary", "learned", "none")},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}},
}
KINDS["yarn"] |= KINDS["rotary"]
EVERY_LEAF = {
    family.name: {**LEAVES[family.name], **KINDS, **({} if family is SEQ2SEQ else {"w": WINDOWS})}
    for family in (DECODER, SEQ2SEQ, ENCODER)
}
OUTPUTS = {"logits", "last_hidden_state", "start_logits", "end_logits"}
HEADS = {
    "TformerDecoderModel": DECODER,
    "TformerDecoderForSequenceClassification": DECODER,
    "TformerDecoderForTokenClassification": DECODER,
    "TformerDecoderForQuestionAnswering": DECODER,
    "TformerEncoderModel": ENCODER,
    "TformerEncoderForSequenceClassification": ENCODER,
    "TformerEncoderForTokenClassification": ENCODER,
    "TformerEncoderForQuestionAnswering": ENCODER,
    "TformerSeq2SeqModel": SEQ2SEQ,
}


def inputs_of(family, lengths):
    ids, mask = pad(random_rows(lengths), "right" if family is SEQ2SEQ else "left")
    inputs = {"input_ids": ids, "attention_mask": mask}
    inputs |= family.target(torch.tensor(random_rows([lengths[0] + 2] * len(lengths))))
    return inputs | ({"use_cache": False} if family in WRITERS else {})


def compare(family, program, model, inputs):
    """At real tokens: what is computed at padding means nothing."""
    actual, expected = program(**inputs), model(**inputs)
    is_by_token = family is not SEQ2SEQ and "ForSequence" not in type(model).__name__
    real = inputs["attention_mask"].bool() if is_by_token else ...
    for name in OUTPUTS & set(expected):
        torch.testing.assert_close(actual[name][real], expected[name][real], **CLOSE)


def export(family, model, strict=False):
    seen = inputs_of(family, SEEN)
    open_sizes = {0: Dim.AUTO, 1: Dim.AUTO}
    shapes = {n: open_sizes if isinstance(x, torch.Tensor) else None for n, x in seen.items()}
    return torch.export.export(model, (), seen, dynamic_shapes=shapes, strict=strict).module()


@torch.no_grad()
def takes_other_shapes(family, model, strict=False):
    program = export(family, model, strict)
    for lengths in (SEEN, *OTHERS):
        compare(family, program, model, inputs_of(family, lengths))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_an_exported_model_takes_shapes_that_it_never_saw(family, backend):
    takes_other_shapes(family, family.build(backend))


@each(ARCHITECTURES)
def test_so_does_every_architecture(family, leaf):
    takes_other_shapes(family, family.build(backend_of(leaf), **leaf))


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
@each(EVERY_LEAF)
def test_so_does_every_leaf(family, leaf, strict):
    takes_other_shapes(family, family.build(backend_of(leaf), **leaf), strict)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_so_does_every_head(name):
    family = HEADS[name]
    model = family.build(model_class=getattr(hf_tformer, name))
    takes_other_shapes(family, model)
