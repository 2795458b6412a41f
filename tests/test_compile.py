"""torch.compile sees one graph, and compiles it once.

The aot_eager backend traces and differentiates like the real one but needs no C++ compiler.
"""

import pytest
import torch
from families import SEQ2SEQ, by_writers, random_rows

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# Attention and positions do not meet in the code, so not every pair is compiled.
PAIRS = [("eager", "rotary"), ("sdpa", "rotary"), ("sdpa", "learned"), ("sdpa", "sinusoidal")]


@pytest.mark.parametrize(("attention", "positions"), PAIRS)
def test_a_training_step_is_one_graph(family, attention, positions):
    model = family.build(attention, position_embedding_type=positions)
    batch = family.training_batch(random_rows([9, 3, 7]), random_rows([4, 8, 2]))
    expected = model(**batch).loss
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    loss = compiled(**batch).loss
    torch.testing.assert_close(loss, expected, **CLOSE)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


@by_writers
@torch.no_grad()
def test_a_decoding_step_is_one_graph_that_serves_every_step(family):
    model = family.build()
    ids = torch.tensor(random_rows([12, 12]))
    expected = family.at_once(model, ids)
    graphs = 0

    def count(graph, inputs):
        nonlocal graphs
        graphs += 1
        return graph.forward

    compiled = torch.compile(model, fullgraph=True, backend=count)
    cache = family.static_cache(model, 16)
    given, name = {}, "input_ids"
    if family is SEQ2SEQ:
        source = family.source(ids)
        encoded = model.get_encoder()(**source)
        given, name = (
            {"encoder_outputs": encoded, "attention_mask": source["attention_mask"]},
            "decoder_input_ids",
        )
    model(**given, **{name: ids[:, :4]}, past_key_values=cache, use_cache=True)
    after_each = []
    for position in range(4, 12):
        step = {name: ids[:, position : position + 1].clone()}
        logits = compiled(**given, **step, past_key_values=cache, use_cache=True).logits
        torch.testing.assert_close(logits[:, 0], expected[:, position], **CLOSE)
        after_each.append(graphs)
    assert after_each[-1] == after_each[1], f"compiled again after step two: {after_each}"


def test_one_graph_serves_every_length(family):
    model = family.build()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (5, 9, 13):
        ids = torch.tensor(random_rows([length, length]))
        target = family.target(ids)
        torch.testing.assert_close(
            compiled(input_ids=ids, use_cache=False, **target).logits,
            model(input_ids=ids, use_cache=False, **target).logits,
            **CLOSE,
        )
