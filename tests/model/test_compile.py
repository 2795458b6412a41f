"""torch.compile sees one graph, and compiles it once.

The aot_eager backend traces and differentiates like the real one but needs no C++ compiler.
"""

from itertools import product

import pytest
import torch

import hf_tformer.fast
from support.families import (
    DECODER,
    ENCODER,
    FAMILIES,
    SEQ2SEQ,
    WRITERS,
    build_for_graphs,
    by_writers,
    pad,
    random_rows,
    writer_first,
)
from support.leaves import LEAVES, WINDOWS, backend_of, each

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Counting:
    """A backend that runs each graph as it is, and counts them."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


# Attention and positions do not meet in the code, so not every pair is compiled.
PAIRS = [("eager", "rotary"), ("sdpa", "rotary"), ("sdpa", "learned"), ("sdpa", "sinusoidal")]


def is_quick(family, pair):
    """Every family is compiled, and every pair, but not every pair of every family."""
    return family is DECODER or pair == ("sdpa", "rotary")


STEPS = [
    pytest.param(
        *(family, *pair),
        marks=() if is_quick(family, pair) else pytest.mark.slow,
        id="-".join((family.name, *pair)),
    )
    for family, pair in product(FAMILIES, PAIRS)
]


@pytest.mark.parametrize(("family", "attention", "positions"), STEPS)
def test_a_training_step_is_one_graph(family, attention, positions):
    model = build_for_graphs(family, attention, position_embedding_type=positions)
    batch = family.training_batch(random_rows([9, 3, 7]), random_rows([4, 8, 2]))
    expected = model(**batch).loss
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    loss = compiled(**batch).loss
    torch.testing.assert_close(loss, expected, **CLOSE)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def beside_source(family, model, ids):
    """What each step is given, and the name of its own ids: a source stays what it is."""
    if family is not SEQ2SEQ:
        return {}, "input_ids"
    source = family.source(ids)
    encoded = model.get_encoder()(**source)
    given = {"encoder_outputs": encoded, "attention_mask": source["attention_mask"]}
    return given, "decoder_input_ids"


@by_writers
@torch.no_grad()
def test_a_decoding_step_is_one_graph_that_serves_every_step(family):
    model = build_for_graphs(family)
    ids = torch.tensor(random_rows([12, 12]))
    expected = family.at_once(model, ids)
    count = Counting()
    compiled = torch.compile(model, fullgraph=True, backend=count)
    cache = family.static_cache(model, 16)
    given, name = beside_source(family, model, ids)
    model(**given, **{name: ids[:, :4]}, past_key_values=cache, use_cache=True)
    after_each = []
    for position in range(4, 12):
        step = {name: ids[:, position : position + 1].clone()}
        logits = compiled(**given, **step, past_key_values=cache, use_cache=True).logits
        torch.testing.assert_close(logits[:, 0], expected[:, position], **CLOSE)
        after_each.append(count.graphs)
    assert after_each[-1] == after_each[1], f"compiled again after step two: {after_each}"


@torch.no_grad()
def graphs_of_steps(family, model, has_room):
    """Two are needed, for a lone token and for several: how many texts and how long a past is stays
    open."""
    count = Counting()
    compiled = torch.compile(model, fullgraph=True, backend=count, dynamic=True)
    for texts in (2, 3, 5):
        ids = torch.tensor(random_rows([13] * texts))
        expected = family.at_once(model, ids)
        cache = family.static_cache(model, 16) if has_room else None
        given, name = beside_source(family, model, ids)
        first = model(**given, **{name: ids[:, :4]}, past_key_values=cache, use_cache=True)
        at = 4
        for new in ids[:, 4:].split([1, 1, 3, 2, 1, 1], dim=1):
            step = {name: new.clone()}
            logits = compiled(**given, **step, past_key_values=first.past_key_values).logits
            torch.testing.assert_close(logits, expected[:, at : (at := at + new.shape[1])], **CLOSE)
    return count.graphs


@writer_first
def test_steps_beside_a_growing_cache_are_two_graphs(family):
    with hf_tformer.fast.disabled():  # else the past lies in a larger buffer at one step
        assert graphs_of_steps(family, build_for_graphs(family), has_room=False) == 2


SEVERAL = ([5, 3], [9, 4, 7], [2, 13, 6, 4])
SINGLE = ([9], [1, 1], [1])  # one text or one token: torch's own special cases


@torch.no_grad()
def is_one_graph(family, model, batches=SEVERAL):
    count = Counting()
    compiled = torch.compile(model, fullgraph=True, backend=count, dynamic=True)
    for lengths in batches:
        ids, mask = pad(random_rows(lengths), "right")
        inputs = {"input_ids": ids, "attention_mask": mask, **family.target(ids)}
        inputs |= {} if family is ENCODER else {"use_cache": False}
        real = ... if family is SEQ2SEQ else mask.bool()
        actual, expected = compiled(**inputs).logits, model(**inputs).logits
        torch.testing.assert_close(actual[real], expected[real], **CLOSE)
        assert count.graphs == 1 or 1 in ids.shape


def test_one_graph_serves_every_batch_and_length(family):
    is_one_graph(family, build_for_graphs(family))


EVERY_LEAF = {
    family.name: LEAVES[family.name] | ({} if family is SEQ2SEQ else {"windows": WINDOWS})
    for family in FAMILIES
}


@pytest.mark.slow
@each(EVERY_LEAF)
def test_one_graph_serves_every_batch_and_length_of_every_leaf(family, leaf):
    is_one_graph(family, build_for_graphs(family, backend_of(leaf), **leaf), (*SEVERAL, *SINGLE))


@pytest.mark.slow
@pytest.mark.parametrize("has_room", [False, True], ids=["growing", "static"])
@each(EVERY_LEAF, families=WRITERS)
def test_so_are_steps_of_every_leaf(family, leaf, has_room):
    with hf_tformer.fast.disabled():
        graphs = graphs_of_steps(
            family, build_for_graphs(family, backend_of(leaf), **leaf), has_room
        )
    # transformers' sliding cache counts its tokens in Python: it is compiled anew as it fills.
    slides = "sliding_window" in leaf and not has_room
    assert graphs == 2 or slides
