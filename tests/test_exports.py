"""Exports keep their shapes open: what tracing saw is not all that the graph can do."""

import pytest
import torch
from families import SEQ2SEQ, WRITERS, pad, random_rows
from torch.export import Dim

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def inputs_of(family, lengths):
    ids, mask = pad(random_rows(lengths), "right" if family is SEQ2SEQ else "left")
    inputs = {"input_ids": ids, "attention_mask": mask}
    return inputs | family.target(torch.tensor(random_rows([lengths[0] + 2] * len(lengths))))


def compare(family, program, model, inputs):
    """At real tokens: what is computed at padding means nothing."""
    real = ... if family is SEQ2SEQ else inputs["attention_mask"].bool()
    actual, expected = program(**inputs).logits, model(**inputs).logits
    torch.testing.assert_close(actual[real], expected[real], **CLOSE)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_an_exported_model_takes_shapes_that_it_never_saw(family, backend):
    model = family.build(backend)
    without_cache = {"use_cache": False} if family in WRITERS else {}
    seen = inputs_of(family, [7, 4, 5])
    shapes = {name: {0: Dim.AUTO, 1: Dim.AUTO} for name in seen} | dict.fromkeys(without_cache)
    with torch.no_grad():
        program = torch.export.export(
            model, (), {**seen, **without_cache}, dynamic_shapes=shapes, strict=False
        ).module()
        for lengths in ([7, 4, 5], [11, 3], [4, 9, 2, 6, 5]):
            compare(family, program, model, {**inputs_of(family, lengths), **without_cache})


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
