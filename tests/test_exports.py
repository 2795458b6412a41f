"""Exports keep their shapes open: what tracing saw is not all that the graph can do."""

import pytest
import torch
from families import DECODER, SEQ2SEQ, pad, random_rows
from torch.export import Dim

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def inputs_of(family, lengths):
    ids, mask = pad(random_rows(lengths), "left" if family is DECODER else "right")
    inputs = {"input_ids": ids, "attention_mask": mask}
    if family is SEQ2SEQ:
        inputs["decoder_input_ids"] = torch.tensor(random_rows([lengths[0] + 2] * len(lengths)))
    return inputs


def compare(family, program, model, inputs):
    """At real tokens: what is computed at padding means nothing."""
    real = inputs["attention_mask"].bool() if family is DECODER else ...
    actual, expected = program(**inputs).logits, model(**inputs).logits
    torch.testing.assert_close(actual[real], expected[real], **CLOSE)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_an_exported_model_takes_shapes_that_it_never_saw(family, backend):
    model = family.build(backend)
    open_shape = {0: Dim.AUTO, 1: Dim.AUTO}
    shapes = dict.fromkeys(inputs_of(family, [2]), open_shape)
    seen = {**inputs_of(family, [7, 4, 5]), "use_cache": False}
    with torch.no_grad():
        program = torch.export.export(
            model, (), seen, dynamic_shapes={**shapes, "use_cache": None}, strict=False
        ).module()
        for lengths in ([7, 4, 5], [11, 3], [4, 9, 2, 6, 5]):
            inputs = {**inputs_of(family, lengths), "use_cache": False}
            compare(family, program, model, inputs)


def test_transformers_own_exporter_keeps_shapes_open(family):
    exporters = pytest.importorskip("transformers.exporters")
    model = family.build()
    seen = {**inputs_of(family, [7, 4, 5]), "use_cache": False}
    config = exporters.DynamoConfig(dynamic=True)
    program = exporters.DynamoExporter().export(model, dict(seen), config)
    # Later versions of transformers return a program that can be called itself.
    call = program.module() if isinstance(program, torch.export.ExportedProgram) else program
    inputs = {**inputs_of(family, [11, 3]), "use_cache": False}
    with torch.no_grad():
        compare(family, call, model, inputs)
