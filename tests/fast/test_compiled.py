"""Compiled steps of one text write what the others write, and are left out where they cannot."""

import gc
import threading
import weakref
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch
from torch import nn
from transformers import LogitsProcessorList

from hf_tformer import fast
from hf_tformer.fast import compiled, threads
from support.counting import generated, left_padded
from support.families import DECODER, MIXTURE, WRITERS, first_of
from support.fast_paths import VARIANTS, end_of_a_row

COMPILED = [family for family in WRITERS if family is not MIXTURE]
compiled_first = first_of(COMPILED)
MORE_VARIANTS = {
    "one key head": {"num_key_value_heads": 1},
    "a window": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5},
    "alibi": {"position_embedding_type": "none", "score_bias": "alibi"},
    "a scale of logits": {"logit_scale": 0.3},
    "gelu by tanh": {"hidden_act": "gelu_pytorch_tanh"},
}


@pytest.fixture(autouse=True)
def compiled_steps():
    fast.enable(compiled=True)
    yield
    fast.enable()


@pytest.fixture(params=COMPILED, ids=lambda family: family.name)
def family(request):
    return request.param


@contextmanager
def counted_codes():
    """A list of the code of every piece, in order."""
    codes, code_of = [], compiled.code_of

    def counted(*args):
        codes.append(code_of(*args))
        return codes[-1]

    with patch.object(compiled, "code_of", counted):
        yield codes


def logits_of(model, text=None, **options):
    """What it writes, or is made to; the logits of each token; the texts in each step."""
    seen = []

    def see(ids, logits):
        seen.append(logits.clone())
        if text is None:
            return logits
        return torch.full_like(logits, -torch.inf).scatter(1, text[:, ids.shape[1], None], 0)

    written, texts = generated(model, logits_processor=LogitsProcessorList([see]), **options)
    return written, torch.stack(seen), texts


def assert_equal_to_plain(model, **options):
    ours, our_logits, texts = logits_of(model, **options)
    with fast.disabled():
        theirs, their_logits, _ = logits_of(model, **options)
    assert texts  # steps of our own were taken
    assert ours.tolist() == theirs.tolist()
    torch.testing.assert_close(our_logits, their_logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mask", ["a prompt", "a prompt behind padding"])
def test_a_compiled_text_is_the_text_of_the_modules(family, mask):
    inputs = left_padded([7])
    if mask != "a prompt":
        inputs = {name: tensor[:1] for name, tensor in left_padded([4, 9]).items()}
    with counted_codes() as codes:
        assert_equal_to_plain(family.build(), **inputs)
    assert codes


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_model_writes_the_same_compiled(family, variant):
    with counted_codes() as codes:
        assert_equal_to_plain(family.build(**VARIANTS[variant]), **left_padded([7]))
    assert codes


@pytest.mark.slow
@pytest.mark.parametrize("variant", MORE_VARIANTS)
def test_rarer_kinds_of_decoders_write_the_same_compiled(variant):
    model = DECODER.build(**MORE_VARIANTS[variant])
    assert_equal_to_plain(model, **left_padded([7]), max_new_tokens=40)


def test_layers_that_are_built_alike_share_code_with_weights_of_their_own():
    model = DECODER.build(num_hidden_layers=5)
    with counted_codes() as codes:
        assert_equal_to_plain(model, **left_padded([7]))
    assert len(codes) == 6
    assert len(set(codes)) == 3  # before the first look, between two, behind the last


class Activation(nn.Module):
    """One of a user's own, which a trace would take for a constant."""

    def forward(self, states):
        return torch.from_numpy(states.numpy().clip(0))


def test_an_activation_of_a_users_own_is_not_compiled():
    model = DECODER.build()
    for layer in model.model.layers:
        layer.mlp.act_fn = Activation().eval()
    with counted_codes() as codes:
        assert_equal_to_plain(model, **left_padded([7]))
    assert not codes


def test_a_rotation_that_remembers_its_text_is_asked_of_no_other_token():
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    sizes = {"max_position_embeddings": 16, "tie_word_embeddings": False}

    def two_texts():
        model = DECODER.build(rope_parameters=rope, num_hidden_layers=3, **sizes)
        return [generated(model, **left_padded([length]))[0].tolist() for length in (60, 30)]

    ours = two_texts()
    with fast.disabled():
        assert ours == two_texts()


def test_threads_may_begin_at_the_same_time(monkeypatch):
    monkeypatch.setattr(compiled, "CODES", {})
    model, inputs, texts = DECODER.build(), left_padded([7]), []

    def write():
        texts.append(generated(model, **inputs)[0].tolist())

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with fast.disabled():
        write()
    assert texts == texts[:1] * 4


def test_the_last_text_of_a_batch_goes_on_compiled():
    model, inputs = DECODER.build(), left_padded([7, 5])
    end = end_of_a_row(model, inputs)
    with counted_codes() as codes:
        ours, texts = generated(model, **inputs, eos_token_id=end)
    with fast.disabled():
        theirs, _ = generated(model, **inputs, eos_token_id=end)
    assert set(texts) == {2, 1}
    assert codes
    assert ours.tolist() == theirs.tolist()


def test_more_texts_than_one_are_not_compiled():
    with counted_codes() as codes:
        generated(DECODER.build(), **left_padded([7, 3]))
        generated(DECODER.build(), **left_padded([7]), num_beams=3)
    assert not codes


@pytest.mark.parametrize("change", ["written into", "replaced", "cast"])
def test_new_weights_are_used_in_the_next_text(change):
    model, inputs = DECODER.build(), left_padded([7])
    before = generated(model, **inputs)[0]
    with torch.no_grad():
        for linear in (module for module in model.modules() if isinstance(module, nn.Linear)):
            if change == "replaced":
                linear.weight = nn.Parameter(linear.weight * -1.3)
            else:
                linear.weight.mul_(-1.3)
    if change == "cast":
        model.to(torch.float64)  # which is not compiled
    assert generated(model, **inputs)[0].tolist() != before.tolist()
    assert_equal_to_plain(model, **inputs)


def test_weights_that_are_one_in_one_layer_are_not_taken_for_one_in_another():
    model = DECODER.build(num_hidden_layers=3, num_key_value_heads=3)
    attention = model.model.layers[1].self_attn
    attention.v_proj.weight = attention.k_proj.weight
    assert_equal_to_plain(model, **left_padded([7]))


def test_bfloat16_is_compiled_and_as_near_as_the_modules_are():
    model, inputs = DECODER.build(), left_padded([7])
    text, exact, _ = logits_of(model, **inputs)
    model.bfloat16()
    with counted_codes() as codes:
        ours = logits_of(model, text, **inputs)[1]
    with fast.disabled():
        theirs = logits_of(model, text, **inputs)[1]
    assert codes
    our_error, their_error = ((found - exact).square().mean() for found in (ours, theirs))
    assert our_error <= 1.3 * their_error


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_numbers_are_not_compiled(dtype):
    with counted_codes() as codes:
        _, texts = generated(DECODER.build().to(dtype), **left_padded([7]))
    assert texts
    assert not codes


def test_code_is_made_anew_for_another_number_of_threads():
    """Inductor writes it into the code."""
    model, threads = DECODER.build(), torch.get_num_threads()
    with counted_codes() as codes:
        generated(model, **left_padded([7]))
        torch.set_num_threads(threads + 1)
        try:
            assert_equal_to_plain(model, **left_padded([7]))
        finally:
            torch.set_num_threads(threads)
    assert len(set(codes)) == 6


def test_code_outlives_the_model_that_it_was_made_for_and_does_not_keep_it():
    first, inputs = DECODER.build(), left_padded([7])
    with counted_codes() as codes:
        generated(first, **inputs)
        weights = [weakref.ref(parameter) for parameter in first.parameters()]
        del first
        gc.collect()
        assert not any(weight() is not None for weight in weights)
        assert_equal_to_plain(DECODER.build(), **inputs)
    assert len(set(codes)) == 3


def test_while_code_is_made_the_model_keeps_its_weights(monkeypatch):
    """Other threads may be writing with it."""
    model, during, make_fx = DECODER.build(), [], compiled.make_fx

    def watched(trace):
        def traced(*inputs):
            done = trace(*inputs)
            during.append([id(parameter) for parameter in model.parameters()])
            return done

        return make_fx(traced)

    monkeypatch.setattr(compiled, "CODES", {})
    monkeypatch.setattr(compiled, "make_fx", watched)
    assert_equal_to_plain(model, **left_padded([7]))
    assert during == [[id(parameter) for parameter in model.parameters()]] * 3


def test_in_inference_mode_too():
    model = DECODER.build()
    with torch.inference_mode():
        assert_equal_to_plain(model, **left_padded([7]))


@pytest.mark.parametrize("kind", [RuntimeError, AssertionError])
def test_what_torch_cannot_compile_is_written_all_the_same_and_said(
    family, kind, monkeypatch, caplog
):
    def fail(*_):
        raise kind("no space left\nand pages more")

    monkeypatch.setattr(compiled, "CODES", {})
    monkeypatch.setattr(compiled, "new_code", fail)
    compiled.logger.warning_once.__func__.cache_clear()
    with caplog.at_level("WARNING", logger=compiled.logger.name):
        assert_equal_to_plain(family.build(), **left_padded([7]))
    assert "not compiled, because torch said: no space left" in caplog.text
    assert "pages" not in caplog.text


def test_experts_are_not_compiled_because_they_differ_from_token_to_token():
    with counted_codes() as codes:
        found = generated(MIXTURE.build(), **left_padded([7]))
    assert codes == []
    fast.enable()
    assert found[1] == generated(MIXTURE.build(), **left_padded([7]))[1]


def test_without_a_compiler_one_is_asked_for():
    fast.enable()
    nowhere = torch._inductor.config.patch({"cpp.cxx": ("/nowhere/g++",)})
    with nowhere, pytest.raises(RuntimeError, match="compiler, and none was found: install"):
        fast.enable(compiled=True)
    assert not fast.settings.is_compiled
    assert fast.status() == "on"


def test_a_while_without_leaves_it_as_it_was():
    with fast.disabled():
        pass
    assert fast.settings.is_compiled
    fast.enable()
    assert not fast.settings.is_compiled


@compiled_first
def test_steps_with_fewer_threads_take_over_where_compiled_ones_are_slower(
    family, two_threads, monkeypatch
):
    """As beside busy processes, where threads that share a loop wait for each other."""
    clock = [0.0]

    def tick():
        clock[0] += torch.get_num_threads() - 0.5
        return clock[0]

    monkeypatch.setattr(threads, "perf_counter", tick)
    model = family.build()
    options = {**left_padded([7]), "max_new_tokens": 50}
    with counted_codes() as codes:
        assert_equal_to_plain(model, **options)
    assert codes
    paces = threads.PACES[model.get_decoder()]
    assert {is_compiled: pace.threads for (*_, is_compiled), pace in paces.items()}[True] == 1
