"""nnsight and nnterp read and change what happens inside of our models, while they run."""

import pytest
import torch

from support.families import DECODER, SEQ2SEQ, by_writers

pytestmark = pytest.mark.study

IDS = torch.tensor([[3, 4, 5, 6, 7]])
by_backend = pytest.mark.parametrize("backend", ["sdpa", "eager"])


def inputs_of(family):
    return {"input_ids": IDS, **family.target(IDS)}


def plain(family, model, **options):
    with torch.no_grad():
        return model(**inputs_of(family), **options)


def path_of(family):
    """Of the layers that the output is written by."""
    return "model.decoder.layers" if family is SEQ2SEQ else "model.layers"


@by_backend
def test_a_trace_is_the_model_as_it_is_and_reads_hidden_states(family, backend, opened):
    from nnsight import NNsight

    model = opened(family, backend)
    tool = NNsight(model)
    layers = tool.get(path_of(family))
    with torch.no_grad(), tool.trace(**inputs_of(family)):
        first = layers[0].output.save()
        logits = tool.output.logits.save()
    expected = plain(family, model, output_hidden_states=True)
    torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-4)
    hidden_states = expected.get("decoder_hidden_states", expected.get("hidden_states"))
    torch.testing.assert_close(first, hidden_states[1], rtol=1e-4, atol=1e-4)


def test_the_pattern_of_a_head_is_read_and_changed_where_it_is_made(family, opened):
    from nnsight import NNsight

    model = opened(family, "eager")
    tool = NNsight(model)
    attention = tool.get(path_of(family))[0].self_attn
    with torch.no_grad():
        with tool.trace(**inputs_of(family)):
            returned = attention.output[1].save()
        with tool.trace(**inputs_of(family)):
            pattern = attention.source.attention_interface_0.source.nn_functional_dropout_0.output
            made = pattern.clone().save()
            pattern[:, 2] = 0
            logits = tool.output.logits.save()
    expected = plain(family, model, output_attentions=True)
    weights = expected.get("decoder_attentions", expected.get("attentions"))[0]
    torch.testing.assert_close(returned, weights)
    torch.testing.assert_close(made, weights)
    assert (logits - expected.logits).abs().max() > 0.01


FOUR = {"min_new_tokens": 4, "max_new_tokens": 4, "do_sample": False}


@by_backend
@by_writers
def test_every_step_of_generate_is_seen(family, backend, opened):
    """What is there for speed alone steps aside."""
    from nnsight import NNsight

    model = opened(family, backend)
    expected = model.generate(IDS, **FOUR)
    tool = NNsight(model)
    layers = tool.get(path_of(family))
    with tool.generate(IDS, **FOUR) as tracer:
        seen = [].save()
        for _ in tracer.iter[0:4]:
            seen.append(layers[1].output[:, -1])
        tokens = tracer.result.save()
    assert torch.equal(tokens, expected)
    assert len(seen) == 4


@by_backend
@by_writers
def test_a_steered_model_writes_something_else(family, backend, opened):
    from nnsight import NNsight

    model = opened(family, backend)
    expected = model.generate(IDS, max_new_tokens=4, do_sample=False)
    tool = NNsight(model)
    layers = tool.get(path_of(family))
    with tool.generate(IDS, max_new_tokens=4, do_sample=False) as tracer:
        for _ in tracer.iter[0:4]:
            layers[1].output[:] = -layers[1].output
        tokens = tracer.result.save()
    assert not torch.equal(tokens, expected)
    assert torch.equal(model.generate(IDS, max_new_tokens=4, do_sample=False), expected)


@pytest.mark.parametrize("trust", [False, True])
def test_nnterp_finds_all_parts_of_a_decoder_by_itself(trust, folder, opened, tokenizer):
    from nnterp import StandardizedTransformer

    tool = StandardizedTransformer(
        str(folder(DECODER)), trust_remote_code=trust, enable_attention_probs=True, device_map="cpu"
    )
    with torch.no_grad(), tool.trace("the cat sat"):
        pattern = tool.attention_probabilities[1].clone().save()
        hidden_states = tool.layers_output[1].save()
        logits = tool.logits.save()
    model = opened(DECODER, "eager")
    ids = tokenizer("the cat sat", return_tensors="pt").input_ids
    with torch.no_grad():
        expected = model(ids, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(logits, expected.logits)
    torch.testing.assert_close(pattern, expected.attentions[1])
    torch.testing.assert_close(model.model.norm(hidden_states), expected.hidden_states[-1])
