"""Beam search of our own finds what transformers' finds, and does not do what changes nothing."""

import pytest
import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from hf_tformer.fast import beams
from support.counting import counted_passes, generated
from support.families import DECODER, DECODERS, SEQ2SEQ, pad, random_rows
from support.fast_paths import VARIANTS


def searched(model, together, **options):
    """What is found, and the number of beams in each step of our own."""
    found, rows = generated(model, not together, **{"num_beams": 4, **options})
    return getattr(found, "sequences", found).tolist(), rows


def prompts(family, lengths):
    ids, mask = pad(random_rows(lengths), "left" if family in DECODERS else "right")
    return {"input_ids": ids, "attention_mask": mask}


MANY_ENDS = list(range(3, 20))
SEARCHES = {
    "plain": {},
    "all of them": {"num_return_sequences": 4, "length_penalty": 0.4},
    "many ends": {"eos_token_id": MANY_ENDS, "num_return_sequences": 2},
    "until as many have ended": {"early_stopping": True, "eos_token_id": MANY_ENDS},
    "until nothing can be better": {"early_stopping": "never", "eos_token_id": MANY_ENDS},
    "short texts": {"length_penalty": -1.0, "eos_token_id": [5, 9, 21], "num_beams": 7},
    "no matter how long": {"length_penalty": 0.0, "eos_token_id": MANY_ENDS, "num_beams": 2},
    "penalised": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2},
    "bounded": {"min_new_tokens": 7, "forced_eos_token_id": 2, "eos_token_id": MANY_ENDS},
    "begun with a token": {"forced_bos_token_id": 8, "eos_token_id": [5, 9]},
    "one token": {"max_new_tokens": 1},
    "the end for padding": {"pad_token_id": 5, "eos_token_id": [5, 9, 21]},
}


@pytest.mark.parametrize("lengths", [[5], [7, 3, 5], [4] * 9], ids=["one", "three", "nine"])
@pytest.mark.parametrize("search", SEARCHES)
def test_beams_side_by_side_find_what_transformers_finds(family, search, lengths):
    model, inputs = family.build(), prompts(family, lengths) | SEARCHES[search]
    ours, rows = searched(model, True, **inputs)
    theirs, none = searched(model, False, **inputs)
    assert bool(rows) is (search != "one token")  # which comes with the prompt
    assert none == []
    assert ours == theirs


@pytest.mark.parametrize("ends", [None, 2])
def test_a_text_that_nothing_may_follow_is_kept(ends):
    """Each token may come once, and then there is none left."""
    model = DECODER.build(vocab_size=11, eos_token_id=ends)
    prompt = torch.tensor([[3, 4, 5, 6]])
    options = {"num_beams": 2, "no_repeat_ngram_size": 1, "max_new_tokens": 20}
    found = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    if ends is None:
        assert sorted(found[0].tolist()) == list(range(11))
    else:
        assert found.shape[1] > prompt.shape[1]


@pytest.mark.parametrize("window", [2, 3, 5, 60])
@pytest.mark.parametrize("kinds", [("sliding",), ("full", "sliding"), ("sliding", "full")], ids=str)
def test_windows_hide_the_keys_that_slid_out_of_them(window, kinds):
    """Longer than the keys that are kept at most, and with texts that end on the way."""
    layers = [f"{kind}_attention" for kind in kinds * (4 // len(kinds))]
    model = DECODER.build(sliding_window=window, layer_types=layers, num_hidden_layers=4)
    for lengths in ([1], [7], [12, 3, 5, 9, 4]):
        inputs = prompts(DECODER, lengths) | {"max_new_tokens": 40, "eos_token_id": [5, 9, 21, 40]}
        ours, rows = searched(model.double(), True, **inputs)
        theirs, _ = searched(model, False, **inputs)
        assert rows
        assert ours == theirs


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_model_finds_the_same(family, variant):
    model, inputs = family.build(**VARIANTS[variant]), prompts(family, [7, 3])
    ours, rows = searched(model, True, **inputs, eos_token_id=MANY_ENDS)
    theirs, _ = searched(model, False, **inputs, eos_token_id=MANY_ENDS)
    assert rows
    assert ours == theirs


def test_a_text_that_cannot_improve_costs_nothing_more(family):
    model, inputs = family.build(), prompts(family, [7, 3, 5, 4, 6, 2, 9])
    inputs |= {"eos_token_id": list(range(3, 40)), "early_stopping": True, "min_new_tokens": 3}
    ours, rows = searched(model, True, **inputs)
    theirs, _ = searched(model, False, **inputs)
    assert rows[0] == 4 * 7 > rows[-1]
    assert ours == theirs


def test_who_counts_rows_sees_them_all():
    """A processor or criterion of the user's may know a text by its place in the batch."""

    def by_place(ids, scores):
        assert len(ids) == 4 * 5
        scores[:4, 30:] -= 2.0  # of the first text
        return scores

    def some_end(ids, scores, **kwargs):
        return ids[:, -1] > 90

    model, inputs = SEQ2SEQ.build(), prompts(SEQ2SEQ, [7, 3, 5, 4, 6])
    inputs |= {
        "eos_token_id": MANY_ENDS,
        "early_stopping": True,
        "logits_processor": LogitsProcessorList([by_place]),
        "stopping_criteria": StoppingCriteriaList([some_end]),
    }
    ours, rows = searched(model, True, **inputs)
    theirs, _ = searched(model, False, **inputs)
    assert set(rows) == {20}
    assert ours == theirs


@pytest.mark.parametrize("penalty", [{}, {"encoder_repetition_penalty": 1.3}], ids=["own", "both"])
def test_a_processor_that_remembers_each_text_finds_it_in_its_place(family, penalty):
    """A batch whose texts end at different steps, beside a penalty for what was said before."""
    model, inputs = family.build(), prompts(family, [7, 3, 5, 4, 6, 2, 9])
    inputs |= {"eos_token_id": list(range(3, 40)), "early_stopping": True, "min_new_tokens": 3}
    inputs |= {"repetition_penalty": 1.3, **penalty}
    ours, beams_of_steps = searched(model, True, **inputs)
    theirs, _ = searched(model, False, **inputs)
    assert beams_of_steps
    assert ours == theirs


def test_a_translation_can_be_begun_with_a_padded_text():
    model, inputs = SEQ2SEQ.build(), prompts(SEQ2SEQ, [7, 3])
    inputs["decoder_input_ids"] = torch.tensor([[0, 1, 8], [1, 9, 7]])
    inputs["decoder_attention_mask"] = torch.tensor([[0, 1, 1], [1, 1, 1]])
    ours, rows = searched(model, True, **inputs)
    theirs, _ = searched(model, False, **inputs)
    assert rows
    assert ours == theirs


def test_a_search_can_begin_with_embeddings_and_with_positions_of_its_own():
    model, inputs = DECODER.build(), prompts(DECODER, [5, 5])
    for given in (
        {"inputs_embeds": model.get_input_embeddings()(inputs["input_ids"])},
        {**inputs, "position_ids": torch.arange(5, 10).repeat(2, 1)},
        {**inputs, "prefill_chunk_size": 3},
    ):
        ours, rows = searched(model, True, **given)
        theirs, _ = searched(model, False, **given)
        assert rows
        assert ours == theirs


def test_a_search_can_begin_with_encoded_sources():
    model, inputs, found = SEQ2SEQ.build(), prompts(SEQ2SEQ, [7, 3]), []
    for together in (True, False):
        encoded = model.get_encoder()(**inputs)  # generate() repeats it where it lies
        given = {"encoder_outputs": encoded, "attention_mask": inputs["attention_mask"]}
        texts, rows = searched(model, together, **given)
        assert bool(rows) is together
        found.append(texts)
    assert found[0] == found[1]


def test_a_prompt_is_read_once_for_all_beams():
    with counted_passes("run_whole_sequences") as read:
        searched(DECODER.build(), True, **prompts(DECODER, [7, 3]))
    assert [shape[:2] for shape in read] == [(2, 7)]


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "top_k": 9},
        {"num_beams": 17},
        {"use_cache": False},
        {"cache_implementation": "static"},
        {"return_dict_in_generate": True, "output_scores": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_other_searches_are_left_to_transformers(family, options):
    inputs = prompts(family, [5, 3]) | options
    found, rows = searched(family.build(), True, **inputs)
    assert rows == []
    assert len(found) == 2


def test_a_cache_of_the_users_own_is_left_to_transformers():
    model, inputs = SEQ2SEQ.build(), prompts(SEQ2SEQ, [7, 3])
    expected, _ = searched(model, False, **inputs)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())  # layers are made as they go
    found, rows = searched(model, True, **inputs, past_key_values=cache)
    assert rows == []
    assert found == expected
    assert cache.self_attention_cache.layers[0].keys.shape[0] == 4 * 2


@pytest.mark.parametrize("size", [16000, 997, 129, 40])
def test_the_largest_scores_are_those_of_topk(size):
    scores = torch.randn(5, size, generator=torch.Generator().manual_seed(0))
    scores[1, 3:] = -torch.inf
    scores[2] -= 1e9
    for count in (1, 2, 8, 24):
        values, tokens = beams.largest(scores, count)
        assert torch.equal(values, scores.topk(count)[0])
        assert torch.equal(values, scores.gather(1, tokens))
