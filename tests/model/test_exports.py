"""Exports keep their shapes open: what tracing saw is not all that the graph can do."""

import copy
import inspect

import pytest
import torch
from torch.export import Dim
from torch.utils._pytree import tree_map_only

import hf_tformer
import hf_tformer.fast
from support.families import (
    DECODER,
    ENCODER,
    FAMILIES,
    SEQ2SEQ,
    WRITERS,
    build_for_graphs,
    by_writers,
    decoder_first,
    pad,
    random_rows,
)
from support.leaves import ARCHITECTURES, LEAVES, WINDOWS, backend_of, each

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
SEEN = [7, 4, 5]
OTHERS = ([11, 3], [4, 9, 2, 6, 5], [9], [1, 1], [1])  # of one text or one token, too
KINDS = {
    **{kind: {"position_embedding_type": kind} for kind in ("rotary", "learned", "none")},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}},
}
KINDS["yarn"] |= KINDS["rotary"]
EVERY_LEAF = {
    family.name: {**LEAVES[family.name], **KINDS, **({} if family is SEQ2SEQ else {"w": WINDOWS})}
    for family in FAMILIES
}
# Their exporter forgets how far the cache of a window has slid.
WITHOUT_WINDOWS = {
    name: {kind: leaf for kind, leaf in leaves.items() if "sliding_window" not in leaf}
    for name, leaves in EVERY_LEAF.items()
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


def named(model, inputs):
    """Some heads are transformers' own, and take `use_cache` without a name."""
    names = inspect.signature(model.forward).parameters
    return {name: value for name, value in inputs.items() if name in names}


def compare(family, program, model, inputs):
    """At real tokens: what is computed at padding means nothing."""
    inputs = named(model, inputs)
    actual, expected = program(**inputs), model(**inputs)
    is_by_token = family is not SEQ2SEQ and "ForSequence" not in type(model).__name__
    real = inputs["attention_mask"].bool() if is_by_token else ...
    for name in OUTPUTS & set(expected):
        torch.testing.assert_close(actual[name][real], expected[name][real], **CLOSE)


def export(family, model, strict=False):
    seen = named(model, inputs_of(family, SEEN))
    open_sizes = {0: Dim.AUTO, 1: Dim.AUTO}
    shapes = {n: open_sizes if isinstance(x, torch.Tensor) else None for n, x in seen.items()}
    return torch.export.export(model, (), seen, dynamic_shapes=shapes, strict=strict)


@torch.no_grad()
def takes_other_shapes(family, model, strict=False):
    program = export(family, model, strict).module()
    for lengths in (SEEN, *OTHERS):
        compare(family, program, model, inputs_of(family, lengths))


def test_an_exported_model_takes_shapes_that_it_never_saw(family):
    takes_other_shapes(family, build_for_graphs(family, "sdpa"))


@decoder_first
def test_so_does_one_with_eager_attention(family):
    takes_other_shapes(family, build_for_graphs(family, "eager"))


def test_so_does_one_whose_distances_count():
    alibi = LEAVES["decoder"]["linear bias"]
    takes_other_shapes(DECODER, DECODER.build(backend_of(alibi), **alibi))


@pytest.mark.slow
@each(ARCHITECTURES)
def test_so_does_every_architecture(family, leaf):
    takes_other_shapes(family, build_for_graphs(family, backend_of(leaf), **leaf))


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
@each(EVERY_LEAF)
def test_so_does_every_leaf(family, leaf, strict):
    takes_other_shapes(family, build_for_graphs(family, backend_of(leaf), **leaf), strict)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_so_does_every_head(name):
    family = HEADS[name]
    model = build_for_graphs(family, model_class=getattr(hf_tformer, name))
    model.config.use_cache = False
    takes_other_shapes(family, model)


@pytest.mark.slow
@pytest.mark.parametrize("family", [DECODER, ENCODER], ids=lambda family: family.name)
@torch.no_grad()
def test_packed_texts_stay_apart_in_an_export(family):
    model = build_for_graphs(family, **WINDOWS)

    def packed(lengths):
        ids = torch.tensor(random_rows([sum(lengths)]))
        places = torch.cat([torch.arange(n) for n in lengths])[None]
        return {"input_ids": ids, "position_ids": places}

    model.config.use_cache = False
    shapes = {name: {1: Dim.AUTO} for name in packed([1])}
    program = torch.export.export(model, (), packed([4, 3]), dynamic_shapes=shapes).module()
    for lengths in ([4, 3], [5, 1, 7], [9]):
        inputs = packed(lengths)
        torch.testing.assert_close(program(**inputs).logits, model(**inputs).logits, **CLOSE)


@decoder_first
def test_transformers_own_exporter_keeps_shapes_open(family):
    exporters = pytest.importorskip("transformers.exporters")
    model = build_for_graphs(family)
    config = exporters.DynamoConfig(dynamic=True)
    program = exporters.DynamoExporter().export(model, inputs_of(family, SEEN), config)
    # Later versions of transformers return a program that can be called itself.
    call = program.module() if isinstance(program, torch.export.ExportedProgram) else program
    with torch.no_grad():
        compare(family, call, model, inputs_of(family, [11, 3]))


def run_as_traced(program, folder):
    return program.module()


def run_as_compiled(program, folder):
    """By AOTInductor: C++ that needs no Python, loaded from its file."""
    path = str(folder / f"{len(list(folder.iterdir()))}.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    run = torch._inductor.aoti_load_package(path)
    # It takes each input to lie in memory as the example did, and does not look.
    return lambda **inputs: run(**tree_map_only(torch.Tensor, torch.Tensor.contiguous, inputs))


def writes_the_same(family, model, folder=None, load=run_as_traced):
    """One graph reads prompts, the other goes on beside a cache that grows; generate() drives."""
    exporters = pytest.importorskip("transformers.exporters")
    ids, mask = pad(random_rows(SEEN), "right" if family is SEQ2SEQ else "left")
    config = exporters.DynamoConfig(dynamic=True)
    with hf_tformer.fast.disabled():  # else the cache of the example lies in a larger buffer
        parts = exporters.DynamoExporter().export_for_generation(
            model, {"input_ids": ids, "attention_mask": mask}, config, multi_token_decode=True
        )
    # Later versions of transformers return more than the programs.
    programs = {name: x.program for name, x in getattr(parts, "components", parts).items()}
    names = {name: program.call_spec.in_spec.child(1).context for name, program in programs.items()}
    runs = {name: load(program, folder) for name, program in programs.items()}

    def forward(**inputs):
        stage = "decode" if inputs["past_key_values"].get_seq_length() else "prefill"
        return runs[stage](**{name: inputs[name] for name in names[stage]})

    forward.__signature__ = inspect.signature(model.forward)
    driven = copy.copy(model)
    driven.forward = forward
    for lengths in ([11, 3], [4, 9, 2, 6, 5]):
        rows = random_rows(lengths, seed=1)
        expected = family.generate(model, rows, max_new_tokens=12)
        assert family.generate(driven, rows, max_new_tokens=12) == expected


@pytest.mark.slow  # ten seconds for each family
@pytest.mark.parametrize("family", WRITERS, ids=lambda family: family.name)
def test_texts_of_transformers_own_exporter_are_those_of_generate(family):
    writes_the_same(family, build_for_graphs(family))


@pytest.mark.slow
@each(WITHOUT_WINDOWS, families=WRITERS)
def test_so_are_those_of_every_leaf(family, leaf):
    writes_the_same(family, build_for_graphs(family, backend_of(leaf), **leaf))


@pytest.mark.slow
@torch.no_grad()
def test_what_is_compiled_ahead_takes_other_shapes(family, tmp_path):
    model = build_for_graphs(family)
    program = run_as_compiled(export(family, model), tmp_path)
    for lengths in (SEEN, *OTHERS):
        compare(family, program, model, inputs_of(family, lengths))


@pytest.mark.slow
@by_writers
def test_texts_of_what_is_compiled_ahead_are_those_of_generate(family, tmp_path):
    writes_the_same(family, build_for_graphs(family), tmp_path, run_as_compiled)
