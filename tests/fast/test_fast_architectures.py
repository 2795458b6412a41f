"""What other architectures have passes without modules, too: nothing of it slows a model down."""

import copy

import pytest
import torch
from transformers import DynamicCache

from support.counting import counted_passes, left_padded, steps_taken, written
from support.families import DECODER, ENCODER, WRITERS, random_rows
from support.fast_paths import CLOSE, PADDINGS, read_at_once
from support.leaves import ARCHITECTURES, LEAVES, backend_of, each


@each(LEAVES, WRITERS)
@torch.no_grad()
def test_steps_and_whole_sequences_leave_the_modules_out(family, leaf):
    model, mask = family.build(backend_of(leaf), **leaf), torch.tensor(PADDINGS["left"])
    for run in (steps_taken, lambda *args, **how: read_at_once(*args, mask, **how)[::2]):
        quick, taken = run(family, model)
        slow, none = run(family, model, plain=True)
        assert taken > 0
        assert none == 0
        torch.testing.assert_close(quick, slow, **CLOSE)


@each(LEAVES, [ENCODER])
@torch.no_grad()
def test_an_encoder_leaves_the_modules_out(family, leaf):
    model, rows = family.build(backend_of(leaf), **leaf), random_rows([9, 4, 7])
    with counted_passes("run_whole_sequences") as taken:
        quick = family.logits(model, rows, "right")
    assert taken
    with counted_passes("run_whole_sequences", plain=True):
        slow = family.logits(model, rows, "right")
    torch.testing.assert_close(quick, slow, **CLOSE)


@each(ARCHITECTURES, WRITERS)
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
def test_texts_are_written_by_steps_of_our_own(family, leaf, options):
    model = family.build(backend_of(leaf), **leaf).double()
    options = {**left_padded([9, 5]), **options}
    text, taken = written(model, **options)
    assert taken
    assert torch.equal(text, written(model, plain=True, **options)[0])


CONTINUED = {
    name: fields for name, fields in LEAVES["decoder"].items() if "rope" not in str(fields)
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", CONTINUED)
@torch.no_grad()
def test_a_prompt_that_continues_a_cache_leaves_the_modules_out(name, batch):
    leaf = CONTINUED[name]
    model = DECODER.build(backend_of(leaf), **leaf)
    ids = torch.tensor(random_rows([12] * batch))
    outputs = {}
    for plain in (False, True):
        cache = DynamicCache(config=model.config)
        model(ids[:, :5], past_key_values=cache)
        with counted_passes("run_whole_sequences", plain) as taken:
            parts = [model(ids[:, a:b], past_key_values=cache).logits for a, b in ((5, 9), (9, 12))]
        # Linear biases are made for whole sequences from their beginning.
        assert len(taken) == (0 if plain or "score_bias" in leaf else 2)
        outputs[plain] = torch.cat(parts, 1), cache.layers[1].keys, cache.layers[1].values
    torch.testing.assert_close(outputs[False], outputs[True], **CLOSE)


@torch.no_grad()
def test_padding_before_a_prompt_that_continues_is_left_to_the_modules():
    model, ids = DECODER.build(), torch.tensor(random_rows([9, 9]))
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, :2] = 0
    cache = DynamicCache(config=model.config)
    model(ids[:, :5], attention_mask=mask[:, :5], past_key_values=cache)
    twin = copy.deepcopy(cache)
    with counted_passes("run_whole_sequences") as taken:
        quick = model(ids[:, 5:], attention_mask=mask, past_key_values=cache).logits
    assert not taken
    with counted_passes("run_whole_sequences", plain=True):
        slow = model(ids[:, 5:], attention_mask=mask, past_key_values=twin).logits
    torch.testing.assert_close(quick, slow, **CLOSE)


@torch.no_grad()
def test_an_assistant_changes_no_text_and_its_guesses_are_read_without_modules():
    model = DECODER.build(num_hidden_layers=2)
    helper = DECODER.build(num_hidden_layers=1)
    ids = torch.tensor(random_rows([9]))
    plain = model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)
    for options in ({"assistant_model": helper}, {"prompt_lookup_num_tokens": 3}):
        with counted_passes("run_whole_sequences") as taken:
            text = model.generate(
                ids, max_new_tokens=24, do_sample=False, pad_token_id=0, **options
            )
        assert len(taken) > 2
        assert torch.equal(text, plain)
