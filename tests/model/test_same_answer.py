"""Promise one: the same answer everywhere, whatever the batch, the padding, the cache or the
backend."""

import pytest
import torch

from support.families import (
    DECODER,
    DECODERS,
    MIXTURE,
    SEQ2SEQ,
    by_writers,
    pad,
    random_rows,
    until_end,
)

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
ROWS = random_rows([3, 9, 6, 1])
POSITIONS = ("rotary", "learned", "sinusoidal", "none")


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_in_a_padded_batch_scores_as_it_does_alone(family, backend, side, positions):
    model = family.build(backend, position_embedding_type=positions)
    together = family.logits(model, ROWS, side)
    alone = [family.logits(model, [row])[0] for row in ROWS]
    torch.testing.assert_close(together, alone, **CLOSE)


@by_writers
@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("use_cache", [True, False], ids=["cache", "no-cache"])
def test_a_row_in_a_padded_batch_generates_as_it_does_alone(family, backend, use_cache, beams):
    model = family.build(backend)
    how = {"max_new_tokens": 6, "num_beams": beams, "use_cache": use_cache, "do_sample": False}
    together = family.generate(model, ROWS, **how)
    assert together == [family.generate(model, [row], **how)[0] for row in ROWS]


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_backend_gives_the_answer_of_the_eager_one(family, backend, positions):
    options = {"position_embedding_type": positions}
    reference = family.logits(family.build("eager", **options), ROWS)
    torch.testing.assert_close(
        family.logits(family.build(backend, **options), ROWS), reference, **CLOSE
    )


@by_writers
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("chunks", [1, 4, [5, 6]], ids=["token by token", "chunks", "two chunks"])
def test_decoding_beside_a_cache_equals_one_full_pass(family, backend, chunks, positions):
    model = family.build(backend, position_embedding_type=positions)
    ids = torch.tensor(random_rows([11, 11]))
    torch.testing.assert_close(
        family.steps(model, ids, chunks), family.at_once(model, ids), **CLOSE
    )


@by_writers
@pytest.mark.parametrize("chunks", [1, [5, 6]], ids=["token by token", "two chunks"])
def test_a_static_cache_equals_one_full_pass(family, backend, chunks):
    """Flash attention reads every key it is given, and a static cache gives it unwritten ones."""
    model = family.build(backend)
    ids = torch.tensor(random_rows([11, 11]))
    cached = family.steps(model, ids, chunks, cache=family.static_cache(model, 16))
    torch.testing.assert_close(cached, family.at_once(model, ids), **CLOSE)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_left_padded_prompt_of_the_decoder_continues_as_it_does_alone(backend, positions, cache):
    """The decoder of an encoder-decoder may be given the first words, of different lengths."""
    model = SEQ2SEQ.build(backend, position_embedding_type=positions)
    source = random_rows([5])
    starts = [[1, 8], [1, 9, 10, 11]]
    how = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": cache}

    def generate(rows):
        ids, mask = pad(rows, "left")
        prompts = {"decoder_input_ids": ids, "decoder_attention_mask": mask}
        written = model.generate(torch.tensor(source * len(rows)), **prompts, **how)
        return [until_end(row[ids.shape[1] :]) for row in written.tolist()]

    assert generate(starts) == [generate([start])[0] for start in starts]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_mask_as_wide_as_a_static_cache_is_read_from_its_beginning(backend, side):
    model = DECODER.build(backend, position_embedding_type="learned")
    ids, mask = pad(random_rows([7, 5]), side)
    expected = model(input_ids=ids, attention_mask=mask).logits
    wide = torch.nn.functional.pad(mask, (0, 9))
    cache = DECODER.static_cache(model, 16)
    logits = model(input_ids=ids, attention_mask=wide, past_key_values=cache).logits
    torch.testing.assert_close(logits[mask.bool()], expected[mask.bool()], **CLOSE)


@by_writers
def test_a_mask_over_the_new_tokens_alone_is_refused_by_name(family):
    model = family.build()
    ids = torch.tensor(random_rows([6]))
    name = "attention_mask" if family in DECODERS else "decoder_attention_mask"
    given = {"input_ids": ids, **family.target(ids)}
    past = model(**given, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="covers 6 tokens, but 6 are in the cache and 6 are new"):
        model(**given, past_key_values=past, **{name: torch.ones_like(ids)})


@by_writers
def test_decoding_goes_on_rightly_after_the_cache_was_cropped(family):
    model = family.build()
    ids = torch.tensor(random_rows([11, 11]))
    source = family.source(ids) if family is SEQ2SEQ else {}
    name = "decoder_input_ids" if family is SEQ2SEQ else "input_ids"
    past = model(**source, **{name: ids[:, :8]}, use_cache=True).past_key_values
    past.crop(-3)
    resumed = model(**source, **{name: ids[:, 5:]}, past_key_values=past, use_cache=True).logits
    torch.testing.assert_close(resumed, family.at_once(model, ids)[:, 5:], **CLOSE)


@by_writers
def test_a_later_token_never_changes_an_earlier_score(family, backend):
    model = family.build(backend)
    ids = torch.tensor(random_rows([9]))
    changed = ids.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 101
    before, after = family.at_once(model, ids), family.at_once(model, changed)
    if family is MIXTURE:  # an expert that got other tokens beside these rounds otherwise
        torch.testing.assert_close(before[:, :5], after[:, :5], rtol=1e-6, atol=1e-6)
    else:
        assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_the_order_of_the_source_matters_but_its_padding_does_not(backend):
    model = SEQ2SEQ.build(backend)
    (row,) = random_rows([7])
    left, right = (
        SEQ2SEQ.logits(model, [row, random_rows([12])[0]], side)[0] for side in ("left", "right")
    )
    torch.testing.assert_close(left, right, **CLOSE)
    assert not torch.allclose(SEQ2SEQ.logits(model, [row[::-1]])[0], left, **CLOSE)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("lengths", [(6, 6), (6, 4), (6, 9), (6, 1)], ids=str)
def test_teacher_forcing_beside_a_padded_source_is_right_on_flash(monkeypatch, lengths, side):
    """The stock path of flash attention unpads the target with the mask of the source."""
    from hf_tformer.testing import simulated_flash

    simulated_flash.install(monkeypatch)
    source_length, target_length = lengths
    ids, mask = pad(random_rows([source_length, 3, 5]), side)
    target = torch.tensor(random_rows([target_length] * 3, seed=1))
    eager, flash = (
        SEQ2SEQ.build(name, value_head_dim=6)(
            input_ids=ids, attention_mask=mask, decoder_input_ids=target
        ).logits
        for name in ("eager", "flash_attention_2")
    )
    torch.testing.assert_close(flash, eager, **CLOSE)


@pytest.mark.parametrize(
    "layers", [None, ["sliding_attention", "full_attention"]], ids=["all", "mixed"]
)
def test_a_sliding_window_hides_what_lies_before_it_on_every_backend(backend, layers):
    options = {"sliding_window": 3, "layer_types": layers}
    reference = DECODER.logits(DECODER.build("eager", **options), ROWS, "left")
    torch.testing.assert_close(
        DECODER.logits(DECODER.build(backend, **options), ROWS, "left"), reference, **CLOSE
    )
    wide = DECODER.logits(DECODER.build(backend), ROWS, "left")
    assert not torch.allclose(wide[1], reference[1], **CLOSE)


@pytest.mark.parametrize("chunks", [1, [5, 6]], ids=["token by token", "two chunks"])
@pytest.mark.parametrize(
    "layers", [None, ["sliding_attention", "full_attention"]], ids=["all", "mixed"]
)
def test_a_sliding_window_beside_a_cache_equals_one_full_pass(backend, layers, chunks):
    model = DECODER.build(backend, sliding_window=3, layer_types=layers)
    ids = torch.tensor(random_rows([11, 11]))
    torch.testing.assert_close(
        DECODER.steps(model, ids, chunks), DECODER.at_once(model, ids), **CLOSE
    )


def test_packed_sequences_never_see_each_other(backend):
    """Positions that restart mark a new document; the cache that config.use_cache asks for must not
    hide them."""
    model = DECODER.build(backend)
    rows = random_rows([4, 6, 3])
    packed = model(
        input_ids=torch.tensor([[token for row in rows for token in row]]),
        position_ids=torch.tensor([[i for row in rows for i in range(len(row))]]),
    ).logits[0]
    alone = [model(input_ids=torch.tensor([row])).logits[0] for row in rows]
    torch.testing.assert_close(packed, torch.cat(alone), **CLOSE)


def test_a_mask_that_hides_nothing_does_not_unpack_sequences(backend):
    model = DECODER.build(backend)
    ids = torch.tensor(random_rows([9]))
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    expected = model(ids, position_ids=positions).logits
    masked = model(ids, position_ids=positions, attention_mask=torch.ones_like(ids)).logits
    torch.testing.assert_close(masked, expected, **CLOSE)


def test_packed_sequences_given_by_their_boundaries_never_see_each_other_on_flash(monkeypatch):
    from hf_tformer.testing import simulated_flash

    simulated_flash.install(monkeypatch)
    model = DECODER.build("flash_attention_2")
    rows = random_rows([4, 6, 3])
    boundaries = torch.tensor([0, 4, 10, 13], dtype=torch.int32)
    packed = model(
        input_ids=torch.tensor([[token for row in rows for token in row]]),
        position_ids=torch.tensor([[i for row in rows for i in range(len(row))]]),
        cu_seq_lens_q=boundaries,
        cu_seq_lens_k=boundaries,
        max_length_q=6,
        max_length_k=6,
    ).logits[0]
    alone = [model(input_ids=torch.tensor([row])).logits[0] for row in rows]
    torch.testing.assert_close(packed, torch.cat(alone), **CLOSE)


def test_a_row_of_nothing_but_padding_gives_finite_scores_and_gradients(family, backend):
    model = family.build(backend)
    ids, mask = pad(random_rows([5, 7]), "left")
    mask[0] = 0
    target = family.target(torch.tensor(random_rows([4, 4])))
    logits = model(input_ids=ids, attention_mask=mask, **target).logits
    assert torch.isfinite(logits).all()
    logits.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    alone = {name: value[1:] for name, value in target.items()}
    torch.testing.assert_close(
        logits[1:], model(input_ids=ids[1:], attention_mask=mask[1:], **alone).logits, **CLOSE
    )


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_mask_of_booleans_is_taken_as_it_is(attention):
    """A user's own [batch, 1, query, key] mask: here, two documents side by side, each causal."""
    model = DECODER.build(attention, position_embedding_type="none")
    first, second = random_rows([4, 5])
    document = torch.tensor([0] * 4 + [1] * 5)
    mask = (document[:, None] == document) & torch.ones(9, 9).tril().bool()
    logits = model(
        input_ids=torch.tensor([first + second]), attention_mask=mask[None, None]
    ).logits[0]
    alone = [model(input_ids=torch.tensor([row])).logits[0] for row in (first, second)]
    torch.testing.assert_close(logits, torch.cat(alone), **CLOSE)


def test_an_unmasked_model_attends_both_ways_when_asked():
    model = DECODER.build()
    ids = torch.tensor(random_rows([7]))
    changed = ids.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 101
    before, after = (model(input_ids=x, is_causal=False).logits[:, 0] for x in (ids, changed))
    assert not torch.allclose(before, after)


def test_embeddings_may_be_given_instead_of_tokens(family):
    model = family.build()
    ids, mask = pad(random_rows([5, 8]), "left")
    embeds = model.get_input_embeddings()(ids)
    target = family.target(torch.tensor(random_rows([4, 4])))
    expected = model(input_ids=ids, attention_mask=mask, **target).logits
    torch.testing.assert_close(
        model(inputs_embeds=embeds, attention_mask=mask, **target).logits, expected, **CLOSE
    )


@by_writers
def test_only_the_logits_that_are_kept_are_computed(family):
    model = family.build()
    ids = torch.tensor(random_rows([9, 9]))
    target = family.target(ids)
    full = model(input_ids=ids, **target).logits
    for keep, positions in ((2, slice(-2, None)), (torch.tensor([0, 4]), torch.tensor([0, 4]))):
        torch.testing.assert_close(
            model(input_ids=ids, logits_to_keep=keep, **target).logits, full[:, positions]
        )
