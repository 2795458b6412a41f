"""Every way to decode gives what the plain one gives, from a folder with no further arguments."""

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

from hf_tformer.fast.caches import CACHE
from support.families import DECODER, DECODERS, SEQ2SEQ, by_writers, pad, random_rows, until_end

ROWS = random_rows([3, 9, 6, 1])
GREEDY = {"max_new_tokens": 10, "do_sample": False}


def beams_by_hand(family, model, row, beams, steps):
    """Beam search on whole sequences with length penalty 1, for a model that never ends early."""
    start = row if family in DECODERS else [1]
    candidates = [(0.0, start)]
    for _ in range(steps):
        grown = []
        for score, tokens in candidates:
            given = {"input_ids": torch.tensor([tokens])}
            if family is SEQ2SEQ:
                given = {"input_ids": torch.tensor([row]), "decoder_input_ids": given["input_ids"]}
            log_probabilities = model(**given, use_cache=False).logits[0, -1].log_softmax(-1)
            best = log_probabilities.topk(beams)
            grown += [
                (score + s, [*tokens, t])
                for s, t in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            ]
        candidates = sorted(grown, key=lambda candidate: -candidate[0])[:beams]
    return candidates[0][1][len(start) :]


@by_writers
def test_greedy_decoding_is_the_loop_written_by_hand(family, backend):
    model = family.build(backend)
    expected = [family.written_by_hand(model, row) for row in ROWS]
    assert family.generate(model, ROWS, **GREEDY) == expected


@by_writers
def test_beam_search_is_the_search_written_by_hand(family):
    model = family.build()
    model.generation_config.eos_token_id = None
    expected = [beams_by_hand(family, model, row, beams=4, steps=5) for row in ROWS]
    found = family.generate(
        model, ROWS, max_new_tokens=5, num_beams=4, do_sample=False, eos_token_id=None
    )
    assert [tokens[:5] for tokens in found] == [until_end(tokens) for tokens in expected]


@by_writers
@pytest.mark.parametrize("implementation", ["static", "offloaded", "dynamic"])
def test_every_cache_gives_the_same_tokens(family, backend, implementation):
    if implementation == "offloaded" and not torch.cuda.is_available():
        pytest.skip("offloading moves tensors between two devices")
    model = family.build(backend)
    expected = family.generate(model, ROWS, **GREEDY)
    assert family.generate(model, ROWS, **GREEDY, cache_implementation=implementation) == expected


def test_a_sliding_window_generates_the_same_from_every_cache(backend):
    model = DECODER.build(
        backend, sliding_window=3, layer_types=["sliding_attention", "full_attention"]
    )
    expected = DECODER.generate(model, ROWS, **GREEDY, use_cache=False)
    for options in ({}, {"cache_implementation": "static"}):
        assert DECODER.generate(model, ROWS, **GREEDY, **options) == expected


def test_a_prompt_read_in_chunks_gives_the_same_tokens(backend):
    model = DECODER.build(backend)
    expected = DECODER.generate(model, ROWS, **GREEDY)
    assert DECODER.generate(model, ROWS, **GREEDY, prefill_chunk_size=4) == expected


@by_writers
def test_a_draft_model_does_not_change_the_tokens(family):
    model = family.build()
    draft = (
        family.build(num_hidden_layers=1) if family in DECODERS else family.build(decoder_layers=1)
    )
    expected = family.generate(model, ROWS[:1], **GREEDY)
    assert family.generate(model, ROWS[:1], **GREEDY, assistant_model=draft) == expected


@by_writers
def test_looking_up_the_prompt_does_not_change_the_tokens(family):
    model = family.build()
    expected = family.generate(model, ROWS[1:2], **GREEDY)
    assert family.generate(model, ROWS[1:2], **GREEDY, prompt_lookup_num_tokens=3) == expected


def test_an_early_exit_as_a_draft_does_not_change_the_tokens():
    model = DECODER.build()
    expected = DECODER.generate(model, ROWS[:1], **GREEDY)
    assert DECODER.generate(model, ROWS[:1], **GREEDY, assistant_early_exit=1) == expected


WINDOWS = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
SERVED = {
    "default": ("sdpa", {}),
    "windows and other norms": (
        "eager",
        {
            **WINDOWS,
            "qk_norm": True,
            "norm_position": "both",
            "norm_type": "rmsnorm_offset",
            "scale_embedding": True,
        },
    ),
    "side by side, learned positions": (
        "sdpa",
        {
            "parallel_residual": "shared",
            "position_embedding_type": "learned",
            "norm_type": "layernorm",
            "lm_head_bias": True,
            "tie_word_embeddings": False,
        },
    ),
}


@pytest.mark.parametrize(("backend", "fields"), SERVED.values(), ids=SERVED)
def test_continuous_batching_gives_64_requests_the_tokens_of_generate(backend, fields):
    from transformers import ContinuousBatchingConfig, GenerationConfig

    model = DECODER.build(backend, **fields)
    rows = random_rows([1 + i % 23 for i in range(64)])
    expected = DECODER.generate(model, rows, **GREEDY)
    settings = GenerationConfig(**GREEDY, eos_token_id=2, pad_token_id=0)
    # By itself it takes most of the memory there is.
    room = ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=256)
    results = model.generate_batch(
        rows,
        generation_config=settings,
        continuous_batching_config=room,
        progress_bar=False,
    )
    by_prompt = {tuple(result.prompt_ids): result.generated_tokens for result in results.values()}
    assert [until_end(by_prompt[tuple(row)]) for row in rows] == expected


@by_writers
@pytest.mark.parametrize("beams", [1, 3], ids=["sampling", "beam sampling"])
def test_sampling_follows_the_seed(family, beams):
    model = family.build()
    how = {
        "max_new_tokens": 8,
        "do_sample": True,
        "num_beams": beams,
        "top_k": 20,
        "temperature": 0.7,
        "top_p": 0.9,
    }
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(family.generate(model, ROWS, **how))
    assert results[0] == results[1]
    assert results[0] != results[2]


@by_writers
def test_a_saved_folder_generates_with_no_further_arguments(family, tmp_path):
    model = family.build()
    ids, mask = pad(ROWS, "left")
    expected = model.generate(ids, attention_mask=mask)
    model.save_pretrained(tmp_path)
    loaded = family.model_class.from_pretrained(tmp_path)
    assert torch.equal(loaded.generate(ids, attention_mask=mask), expected)


def test_the_encoder_decoder_keeps_two_caches_and_takes_a_single_one():
    model = SEQ2SEQ.build()
    ids = torch.tensor(random_rows([5]))
    output = model(ids, decoder_input_ids=ids)
    assert isinstance(output.past_key_values, EncoderDecoderCache)
    single = model(ids, decoder_input_ids=ids, past_key_values=DynamicCache(config=model.config))
    assert isinstance(single.past_key_values, EncoderDecoderCache)
    torch.testing.assert_close(single.logits, output.logits)


@by_writers
@pytest.mark.parametrize("is_base", [False, True])
def test_a_cache_is_taken_by_either_of_its_names(family, is_base):
    """transformers calls it `cache` from 5.24 on; earlier ones give a paged cache that name."""
    model = family.build()
    ids = torch.tensor(random_rows([6]))
    source, model = family.encoded(model, ids), model.base_model if is_base else model
    ids_name, seen = family.ids_name, {}
    for name in ("past_key_values", CACHE):
        given = {name: DynamicCache(config=model.config), **source}
        given[name] = model(**{ids_name: ids[:, :4]}, **given)[1]  # of the encoder-decoder, a pair
        read = model(**{ids_name: ids[:, 4:]}, **{**source, **given})
        assert read[1] is given[name]
        seen[name] = read[0]
    torch.testing.assert_close(seen[CACHE], seen["past_key_values"])
    whole = model(**{ids_name: ids}, **source, use_cache=False)[0]
    torch.testing.assert_close(seen[CACHE], whole[:, 4:], rtol=1e-4, atol=1e-5)


@by_writers
def test_base_models_and_task_heads_do_not_generate(family):
    assert family.model_class.can_generate()
    assert not family.base_class.can_generate()


@by_writers
def test_nothing_in_a_forward_signature_is_a_relic(family):
    """generate brings back an argument that the library retired, for code that still names it."""
    import inspect

    names = set(inspect.signature(family.model_class.forward).parameters)
    assert not names & {"cache_position", "return_dict", "head_mask", "token_type_ids"}
    assert {
        "attention_mask",
        "past_key_values",
        "inputs_embeds",
        "labels",
        "use_cache",
        "logits_to_keep",
    } <= names
    assert ("position_ids" in names) == (family in DECODERS)
