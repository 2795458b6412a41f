"""What is fast changes no answer: caches written in place, steps without the calls of modules."""

import copy

import pytest
import torch
from torch import nn
from transformers import DynamicCache, StoppingCriteriaList
from transformers.cache_utils import DynamicLayer, EncoderDecoderCache

from hf_tformer import TformerDecoderForCausalLM
from hf_tformer.fast.caches import append
from support.counting import counted_passes, generated, left_padded, steps_taken, written
from support.families import DECODER, DECODERS, SEQ2SEQ, random_rows
from support.fast_paths import CLOSE, PADDINGS, VARIANTS, Adapted, end_of_a_row, read_at_once


def random_states(length, batch=3, size=4):
    return torch.randn(batch, 2, length, size)


@torch.no_grad()
def test_a_cache_written_in_place_holds_what_a_copied_one_holds():
    roomy, plain = DynamicLayer(), DynamicLayer()
    for length in (5, 1, 1, 150, 1, 64, 1):
        keys, values = random_states(length), random_states(length, size=5)
        for ours, theirs in zip(
            append(roomy, keys, values), plain.update(keys, values), strict=True
        ):
            assert torch.equal(ours, theirs)
        for change in (
            lambda layer: layer.reorder_cache(torch.tensor([2, 0, 0])),
            lambda layer: layer.crop(-1),
            lambda layer: layer.batch_select_indices(torch.tensor([1, 2, 0])),
        ):
            change(roomy), change(plain)
            assert torch.equal(roomy.keys, plain.keys)
            assert torch.equal(roomy.values, plain.values)


@torch.no_grad()
def test_a_step_writes_where_the_last_one_ended():
    layer = DynamicLayer()
    append(layer, random_states(20), random_states(20))
    place = layer.keys.data_ptr()
    for _ in range(20):
        append(layer, random_states(1), random_states(1))
    assert layer.keys.data_ptr() == place


@torch.no_grad()
@pytest.mark.parametrize("length", [256, 4000])
def test_a_cache_has_little_room_behind_it(length):
    layer = DynamicLayer()
    append(layer, random_states(length), random_states(length))
    assert layer.keys.untyped_storage().nbytes() < 1.1 * layer.keys.nbytes


@torch.no_grad()
def test_a_copy_of_a_cache_goes_its_own_way(family):
    """As assisted decoding and shared prompts need it."""
    model, ids = family.build(), torch.tensor(random_rows([9, 9]))
    cache = DynamicCache(config=model.config)
    family.steps(model, ids[:, :5], 5, cache)
    kept = copy.deepcopy(cache)
    first = family.steps(model, ids[:, 5:], 1, cache)
    second = family.steps(model, ids[:, 5:], 1, kept)
    assert torch.equal(first, second)


@torch.no_grad()
def test_a_cache_can_be_kept_in_a_file(family, tmp_path):
    model, ids = family.build(), torch.tensor(random_rows([9, 9]))
    cache = DynamicCache(config=model.config)
    expected = family.steps(model, ids, 1, cache)
    cache.crop(-4)
    torch.save(cache, tmp_path / "cache.pt")
    kept = torch.load(tmp_path / "cache.pt", weights_only=False)
    assert kept.get_seq_length() == 5
    actual = family.steps(model, ids[:, 5:], 1, kept)
    torch.testing.assert_close(actual, expected[:, 5:], **CLOSE)


@torch.no_grad()
def test_a_cache_that_was_made_without_a_configuration_serves_too():
    model, ids = DECODER.build(), torch.tensor(random_rows([5]))
    actual = DECODER.steps(model, ids, 1, DynamicCache())
    torch.testing.assert_close(actual, DECODER.at_once(model, ids), **CLOSE)


def test_gradients_reach_what_is_in_a_cache():
    """Prefix tuning learns the keys and values that a cache begins with."""
    model, ids = DECODER.build(), torch.tensor(random_rows([6]))
    cache = DynamicCache(config=model.config)
    model(ids[:, :3], past_key_values=cache, use_cache=True)
    model(ids[:, 3:], past_key_values=cache, use_cache=True).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.model.layers[0].parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_without_modules_computes_what_they_compute(family, variant):
    model = family.build(**VARIANTS[variant])
    quick, taken = steps_taken(family, model)
    slow, none = steps_taken(family, model, plain=True)
    assert taken >= 8  # of nine: the first finds no cache of a source yet
    assert none == 0
    torch.testing.assert_close(quick, slow, **CLOSE)


def adapted(model):
    """A layer of another class, as adapters and quantisers put in place."""
    mlp = model.get_decoder().layers[0].mlp
    layer = Adapted(*mlp.up_proj.weight.shape[::-1], bias=mlp.up_proj.bias is not None)
    layer.load_state_dict(mlp.up_proj.state_dict())
    mlp.up_proj = layer
    return model


def watch(model):
    model.get_decoder().layers[0].self_attn.o_proj.register_forward_hook(
        lambda module, inputs, output: output * 2
    )


def ask_for_attention(model):
    model.config._attn_implementation = "eager"


@pytest.mark.parametrize("change", [adapted, watch, ask_for_attention])
def test_modules_are_called_where_they_are_more_than_their_weights(family, change):
    model = family.build()
    change(model)
    actual, taken = steps_taken(family, model)
    expected, _ = steps_taken(family, model, plain=True)
    assert taken == 0
    torch.testing.assert_close(actual, expected, **CLOSE)


@pytest.mark.parametrize("padding", PADDINGS)
def test_texts_are_read_without_their_padding_as_with_it(family, padding):
    model, mask = family.build(), torch.tensor(PADDINGS[padding])
    quick, _, taken = read_at_once(family, model, mask)
    slow, _, none = read_at_once(family, model, mask, plain=True)
    # A text is written on from its last place, be it padding, and that must be as it would be.
    is_read_on = family in DECODERS and not mask[:, -1].all()
    assert (taken, none) == (0 if is_read_on else 1, 0)
    torch.testing.assert_close(quick, slow, **CLOSE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_model_reads_without_modules_as_with_them(family, variant):
    model, mask = family.build(**VARIANTS[variant]), torch.tensor(PADDINGS["left"])
    quick, _, taken = read_at_once(family, model, mask)
    slow, _, _ = read_at_once(family, model, mask, plain=True)
    assert taken == 1
    torch.testing.assert_close(quick, slow, **CLOSE)


@pytest.mark.parametrize("cache", [None, DynamicCache], ids=["made here", "given"])
def test_what_was_read_without_padding_lies_in_the_cache_as_if_it_had_been_there(
    cache, monkeypatch
):
    model, mask = DECODER.build(), torch.tensor(PADDINGS["left"])
    keys, states = [], []
    for plain in (False, True):
        given = {"past_key_values": cache and cache(), "use_cache": True}
        _, output, _ = read_at_once(DECODER, model, mask, plain, **given)
        past = output.past_key_values
        keys.append([layer.keys.transpose(1, 2)[mask.bool()] for layer in past.layers])
        with torch.no_grad():
            longer = torch.cat((mask, mask.new_ones(3, 1)), dim=1)
            states.append(model(torch.tensor([[7]] * 3), longer, past_key_values=past).logits)
    torch.testing.assert_close(keys[0], keys[1], **CLOSE)
    torch.testing.assert_close(states[0], states[1], **CLOSE)


def test_padding_between_tokens_is_left_to_modules_where_a_window_counts_it():
    """Left out, it would bring tokens nearer to each other than they stand."""
    model = DECODER.build(sliding_window=3, layer_types=["sliding_attention"] * 2)
    mask = torch.tensor(PADDINGS["within"])
    quick, _, taken = read_at_once(DECODER, model, mask, use_cache=False)
    slow, _, _ = read_at_once(DECODER, model, mask, plain=True, use_cache=False)
    assert taken == 0
    torch.testing.assert_close(quick, slow, **CLOSE)


PACKED = {"position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]] * 3)}
FINISHED_MASK = {"attention_mask": torch.ones(9, 9, dtype=torch.bool).tril(-1).expand(3, 1, 9, 9)}
READINGS = {
    "a mask of its own": (FINISHED_MASK, {}),
    "both directions": ({"is_causal": False}, {}),
    "attention to be shown": ({"output_attentions": True}, {}),
}


@pytest.mark.parametrize("reading", READINGS)
def test_texts_that_are_read_in_another_way_are_left_to_modules(reading):
    options, settings = READINGS[reading]
    model = DECODER.build(**settings)
    with counted_passes("run_whole_sequences") as taken, torch.no_grad():
        model(torch.tensor(random_rows([9, 9, 9])), **options)
    assert taken == []


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    "settings",
    [{}, {"sliding_window": 3}, {"score_bias": "alibi", "position_embedding_type": "none"}],
    ids=["rotary", "windows", "linear biases"],
)
def test_packed_sequences_are_read_as_modules_read_them(settings, use_cache):
    model, ids = DECODER.build(**settings), torch.tensor(random_rows([9, 9, 9]))
    logits = []
    for plain in (False, True):
        with counted_passes("run_whole_sequences", plain) as taken, torch.no_grad():
            logits.append(model(ids, **PACKED, use_cache=use_cache).logits)
        assert len(taken) == (0 if plain else 1)
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-5)
    alone = model(ids[:1, :4], use_cache=False).logits
    assert PACKED["position_ids"][0, 4] == 0
    torch.testing.assert_close(logits[0][:1, :4], alone, rtol=1e-4, atol=1e-5)


TEXTS = {
    "greedy": {},
    "sampled": {"do_sample": True, "temperature": 0.8, "top_k": 20},
    "penalised": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2},
    "bounded": {"min_new_tokens": 7, "forced_eos_token_id": 2},
    "one token": {"max_new_tokens": 1},
}


@pytest.mark.parametrize("lengths", [[5], [7, 3, 5], [4] * 9], ids=["one", "three", "nine"])
@pytest.mark.parametrize("text", TEXTS)
def test_steps_of_our_own_write_what_transformers_loop_writes(family, text, lengths):
    model = family.build()
    inputs = left_padded(lengths)
    ours, taken = written(model, **inputs, **TEXTS[text])
    theirs, none = written(model, plain=True, **inputs, **TEXTS[text])
    assert ours.tolist() == theirs.tolist()
    # A decoder's first token comes with its prompt; each of a translation takes a step.
    prompt = inputs["input_ids"].shape[1] + 1 if family in DECODERS else 1
    assert taken == ours.shape[1] - prompt
    assert none == 0


def test_a_cache_that_keeps_all_does_not_widen_the_windows():
    """A cache made without the configuration drops nothing: then only masks keep the windows."""
    model = DECODER.build(sliding_window=4)
    inputs = left_padded([9, 7])
    ours, taken = written(model, **inputs, past_key_values=DynamicCache())
    theirs, _ = written(model, plain=True, **inputs, past_key_values=DynamicCache())
    assert ours.tolist() == theirs.tolist()
    assert taken == 0


BEGINNINGS = {
    "as it is": lambda config: {},
    "each its own": lambda config: {"decoder_input_ids": torch.tensor([[1], [5], [9]])},
    "some tokens": lambda config: {"decoder_input_ids": torch.tensor(random_rows([4, 4, 4]))},
    "a mask": lambda config: {
        "decoder_input_ids": torch.ones(3, 1, dtype=torch.long),
        "decoder_attention_mask": torch.ones(3, 1, dtype=torch.long),
    },
    "an empty cache": lambda config: {
        "past_key_values": EncoderDecoderCache(
            DynamicCache(config=config), DynamicCache(config=config)
        )
    },
    "a cache without layers": lambda config: {
        "past_key_values": EncoderDecoderCache(DynamicCache(), DynamicCache())
    },
}


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rotary"])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_translation_may_begin_in_any_way(beginning, kind):
    model, inputs = SEQ2SEQ.build(position_embedding_type=kind), left_padded([7, 3, 5])
    ours, taken = written(model, **inputs, **BEGINNINGS[beginning](model.config))
    theirs, _ = written(model, plain=True, **inputs, **BEGINNINGS[beginning](model.config))
    assert ours.tolist() == theirs.tolist()
    assert taken > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_model_writes_the_same_by_steps_of_our_own(family, variant):
    model, inputs = family.build(**VARIANTS[variant]), left_padded([7, 3, 5])
    ours, taken = written(model, **inputs)
    theirs, _ = written(model, plain=True, **inputs)
    assert taken > 0
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope", "yarn", "llama3"])
def test_rotations_that_change_with_the_length_are_not_made_ahead(rope_type):
    rope = {
        "dynamic": {"factor": 4.0},
        "yarn": {"factor": 4.0},
        "longrope": {"factor": 2.0, "short_factor": [1.0] * 5, "long_factor": [3.0] * 5},
        "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    }[rope_type]
    rope |= {"rope_type": rope_type, "original_max_position_embeddings": 16}
    model = DECODER.build(rope_parameters=rope, max_position_embeddings=16)
    ours, taken = written(model, **left_padded([7]), max_new_tokens=30)
    theirs, _ = written(model, plain=True, **left_padded([7]), max_new_tokens=30)
    assert taken == 29
    assert ours.tolist() == theirs.tolist()


def test_learned_positions_are_used_to_the_last(family):
    model = family.build(position_embedding_type="learned", max_position_embeddings=24)
    inputs = left_padded([4])
    length = 20 if family in DECODERS else 23
    ours, _ = written(model, **inputs, max_new_tokens=length)
    theirs, _ = written(model, plain=True, **inputs, max_new_tokens=length)
    assert ours.tolist() == theirs.tolist()
    with pytest.raises(ValueError, match="max_position_embeddings is 24"):
        written(model, **inputs, max_new_tokens=length + 2)


def test_a_row_that_has_ended_is_padded_while_others_go_on(family):
    model, inputs = family.build(), left_padded([7, 3, 5])
    ends = end_of_a_row(model, inputs)
    ours, _ = written(model, **inputs, eos_token_id=ends)
    theirs, _ = written(model, plain=True, **inputs, eos_token_id=ends)
    assert ours.tolist() == theirs.tolist()
    assert (ours[:, -1] == 0).any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_that_have_ended_cost_nothing_more(family, variant):
    model, inputs = family.build(**VARIANTS[variant]), left_padded([7, 3, 5, 4, 6, 2, 9, 8, 7])
    inputs |= {"do_sample": True, "temperature": 3.0, "min_new_tokens": 2}
    inputs |= {"eos_token_id": list(range(3, 20))}
    ours, rows = generated(model, **inputs)
    theirs, _ = written(model, plain=True, **inputs)
    assert rows[0] == 9
    assert len(set(rows)) > 2
    assert ours.tolist() == theirs.tolist()


def test_texts_that_share_a_source_may_end_before_each_other():
    """As one text in three languages, each begun by tokens of its own."""
    model, inputs = SEQ2SEQ.build(), left_padded([7])
    inputs["decoder_input_ids"] = torch.tensor(random_rows([2] * 3))
    inputs["decoder_input_ids"][0, 0] = model.config.decoder_start_token_id
    ends = end_of_a_row(model, inputs)
    ours, texts = generated(model, **inputs, eos_token_id=ends)
    theirs, _ = written(model, plain=True, **inputs, eos_token_id=ends)
    assert ours.tolist() == theirs.tolist()
    assert texts[-1] < 3


def test_the_last_row_goes_on_alone():
    model, inputs = DECODER.build(), left_padded([7, 5])
    end = end_of_a_row(model, inputs)
    ours, rows = generated(model, **inputs, eos_token_id=end)
    theirs, _ = written(model, plain=True, **inputs, eos_token_id=end)
    assert set(rows) == {2, 1}
    assert ours.tolist() == theirs.tolist()


def test_the_users_own_cache_keeps_the_rows_that_have_ended():
    model, inputs = DECODER.build(), left_padded([7, 3, 5])
    ends = end_of_a_row(model, inputs)
    cache = DynamicCache(config=model.config)
    ours, rows = generated(model, **inputs, past_key_values=cache, eos_token_id=ends)
    assert set(rows) == {3}
    assert cache.layers[0].keys.shape[0] == 3
    assert cache.get_seq_length() == ours.shape[1] - 1


def test_a_past_that_is_no_cache_is_refused_as_everywhere(family):
    with pytest.raises(ValueError, match="`Cache` instance"):
        family.build().generate(torch.tensor([[5, 6]]), past_key_values=((1, 2),))


def test_a_streamer_and_a_criterion_see_every_token(family):
    class Seen:
        def __init__(self):
            self.tokens, self.ended = [], False

        def put(self, tokens):
            self.tokens.append(tokens.tolist())

        def end(self):
            self.ended = True

    def after_eleven(ids, scores, **kwargs):
        return torch.full((len(ids),), ids.shape[1] >= 11)

    model, inputs, seen = family.build(), left_padded([5]), []
    for own_steps in (True, False):
        streamer = Seen()
        output, _ = written(
            model,
            plain=not own_steps,
            **inputs,
            streamer=streamer,
            stopping_criteria=StoppingCriteriaList([after_eleven]),
        )
        assert output.shape[1] == 11
        seen.append((streamer.tokens, streamer.ended, output.tolist()))
    assert seen[0] == seen[1]


def test_a_conversation_goes_on_from_a_cache():
    model, answers = DECODER.build(), []
    for own_steps in (True, False):
        cache = DynamicCache(config=model.config)
        first, _ = written(model, plain=not own_steps, **left_padded([5]), past_key_values=cache)
        more = torch.cat((first, torch.tensor([[7, 8, 9]])), dim=1)
        last, _ = written(model, plain=not own_steps, input_ids=more, past_key_values=cache)
        answers.append(last.tolist())
    assert answers[0] == answers[1]


def test_a_prompt_is_read_in_chunks_before_the_first_step():
    model, inputs = DECODER.build(), left_padded([7])
    ours, taken = written(model, **inputs, prefill_chunk_size=3)
    theirs, _ = written(model, plain=True, **inputs)
    assert taken > 0
    assert ours.tolist() == theirs.tolist()


def test_a_text_can_begin_with_embeddings_and_with_positions_of_its_own():
    model, inputs = DECODER.build(), left_padded([5])
    embeddings = model.get_input_embeddings()(inputs["input_ids"])
    for given in (
        {"inputs_embeds": embeddings},
        {**inputs, "position_ids": torch.arange(5, 10)[None]},
    ):
        ours, taken = written(model, **given)
        theirs, _ = written(model, plain=True, **given)
        assert taken > 0
        assert ours.tolist() == theirs.tolist()


class Louder(TformerDecoderForCausalLM):
    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits.roll(1, dims=-1)
        return output


def other_forward(model):
    return Louder.from_pretrained(None, config=model.config, state_dict=model.state_dict())


def other_inputs(model):
    prepare = model.prepare_inputs_for_generation
    model.prepare_inputs_for_generation = lambda ids, **kwargs: prepare(ids.roll(1, 0), **kwargs)
    return model


def watched_head(model):
    model.lm_head.register_forward_hook(lambda module, inputs, output: output.roll(1, dims=-1))
    return model


class Wrapped(nn.Module):
    """Looks like the layer within, as adapters do, and is more."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    weight = property(lambda self: self.inner.weight)
    bias = property(lambda self: self.inner.bias)

    def forward(self, states):
        return self.inner(states) * 1.5


def wrapped_projection(model):
    attention = model.model.layers[1].self_attn
    attention.v_proj = Wrapped(attention.v_proj)
    return model


def wrapped_table(model):
    model.model.embed_tokens = Wrapped(model.model.embed_tokens)
    return model


def wrapped_head(model):
    model.lm_head = Wrapped(model.lm_head)
    return model


def wrapped_forward(model):
    forward = model.model.forward
    model.model.forward = lambda *args, **kwargs: forward(*args, **kwargs)
    return model


CHANGES = [
    adapted,
    other_forward,
    other_inputs,
    watched_head,
    wrapped_forward,
    wrapped_head,
    wrapped_projection,
    wrapped_table,
]


def test_a_prefill_of_ones_own_is_called(family):
    model, calls = family.build(), []
    prefill = model._prefill
    model._prefill = lambda *args, **kwargs: calls.append(args) or prefill(*args, **kwargs)
    _, taken = written(model, **left_padded([5]))
    assert (len(calls), taken) == (1, 0)


@pytest.mark.parametrize("change", CHANGES)
def test_whoever_changes_a_model_is_asked_at_every_step(change):
    model = change(DECODER.build()).eval()
    ours, taken = written(model, **left_padded([5]))
    theirs, _ = written(model, plain=True, **left_padded([5]))
    assert taken == 0
    assert ours.tolist() == theirs.tolist()


def test_a_model_that_has_shown_its_attention_is_as_fast_as_before(family):
    model = family.build()
    decoder = {"decoder_input_ids": torch.tensor([[1]])} if family is SEQ2SEQ else {}
    shown = model(**left_padded([5]), **decoder, output_hidden_states=True, use_cache=True)
    again = {"past_key_values": shown.past_key_values, "output_hidden_states": True}
    ids = {"decoder_input_ids" if decoder else "input_ids": torch.tensor([[4]])}
    source = {"encoder_outputs": (shown.encoder_last_hidden_state,)} if decoder else {}
    with torch.no_grad():
        seen = model(**ids, **source, **again)
    assert len(seen.decoder_hidden_states if decoder else seen.hidden_states) == 3
    _, taken = written(model, **left_padded([5]))
    assert taken > 0


@pytest.mark.parametrize(
    "options",
    [{"use_cache": False}, {"cache_implementation": "static"}, {"return_dict_in_generate": True}],
)
def test_other_caches_and_outputs_are_left_to_transformers(family, options):
    output, taken = written(family.build(), **left_padded([5]), **options)
    assert taken == 0
    assert len(output) > 0


@pytest.mark.parametrize("family_name", ["decoder", "seq2seq"])
def test_new_weights_are_used_in_the_next_text(family_name):
    family = DECODER if family_name == "decoder" else SEQ2SEQ
    model = family.build()
    rows = random_rows([5])
    before = family.generate(model, rows, max_new_tokens=8, do_sample=False)
    other = family.build(initializer_range=0.3)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(-1.3)
    expected = family.generate(other, rows, max_new_tokens=8, do_sample=False)
    model.load_state_dict(other.state_dict())
    assert family.generate(model, rows, max_new_tokens=8, do_sample=False) == expected != before
