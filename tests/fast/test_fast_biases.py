"""What distances add to the scores is added without modules, too: wherever keys lie in a cache."""

import pytest
import torch
from transformers import DynamicCache

from hf_tformer import fast
from hf_tformer.fast import biases
from support.counting import counted_passes, generated, left_padded
from support.families import DECODER, DECODERS, SEQ2SEQ, pad, random_rows
from support.fast_paths import PADDINGS, read_at_once

EXACT = {"rtol": 1e-9, "atol": 1e-9}
KINDS = {
    "alibi": (DECODER, {"position_embedding_type": "none"}),
    "alibi beside rotation": (DECODER, {"position_embedding_type": "rotary"}),
    "relative": (SEQ2SEQ, {"position_embedding_type": "none"}),
    "relative_per_layer": (SEQ2SEQ, {"position_embedding_type": "none", "encoder_layers": 2}),
}
SAMPLED = {"do_sample": True, "temperature": 3.0}
kinds = pytest.mark.parametrize("kind", KINDS)


def build(kind, dtype=torch.float32, **overrides):
    """A model whose distances count for as much as its words do."""
    family, fields = KINDS[kind]
    model = family.build(**{**fields, "score_bias": kind.split()[0], **overrides})
    with torch.no_grad():
        for name, table in model.named_parameters():
            if "score_bias" in name:
                table.mul_(8)
    return family, model.to(dtype)


def written(model, plain=False, **options):
    """Long enough for ranges of several distances, and so varied that all of them count."""
    options |= {"max_new_tokens": 45, "min_new_tokens": 45, "no_repeat_ngram_size": 2}
    output, texts = generated(model, plain, **options)
    return output.tolist(), len(texts)


@kinds
@pytest.mark.parametrize("padding", PADDINGS)
def test_texts_are_read_alike_in_both_ways(kind, padding):
    family, model = build(kind, torch.float64)
    mask = torch.tensor(PADDINGS[padding])
    quick, _, taken = read_at_once(family, model, mask)
    slow, _, none = read_at_once(family, model, mask, plain=True)
    # Padding between tokens widens their distances; a prompt that ends in it is read on from there.
    is_left_aside = padding == "within" or (family in DECODERS and not mask[:, -1].all())
    assert (taken, none) == (0 if is_left_aside else 1, 0)
    torch.testing.assert_close(quick, slow, **EXACT)


@kinds
def test_distances_of_long_texts_are_in_the_same_ranges(kind):
    """Beyond 128 tokens all share one."""
    family, model = build(kind, torch.float64)
    ids, mask = pad(random_rows([300, 140, 141, 17]), "left")
    inputs = {"input_ids": ids, "attention_mask": mask}
    inputs |= {"decoder_input_ids": ids[:, :3]} if family is SEQ2SEQ else {}
    with counted_passes("run_whole_sequences") as taken, torch.no_grad():
        quick = model(**inputs).logits
    with fast.disabled(), torch.no_grad():
        slow = model(**inputs).logits
    assert len(taken) == 1
    real = mask.bool() if family in DECODERS else slice(None)
    torch.testing.assert_close(quick[real], slow[real], **EXACT)


@kinds
@torch.no_grad()
def test_a_step_beside_a_cache_adds_what_modules_add(kind):
    family, model = build(kind, torch.float64)
    ids = torch.tensor(random_rows([150, 150]))
    with counted_passes("run_next_tokens") as taken:
        quick = family.steps(model, ids, 1)
    assert len(taken) >= 149
    torch.testing.assert_close(quick, family.at_once(model, ids), **EXACT)


@torch.no_grad()
def test_steps_go_on_from_a_padded_prompt():
    _, model = build("alibi", torch.float64)
    ids, mask = pad(random_rows([7, 3, 5]), "left")
    logits = []
    for plain in (False, True):
        cache = DynamicCache(config=model.config)
        model(ids, mask, past_key_values=cache)
        longer = torch.cat((mask, mask.new_ones(3, 1)), dim=1)
        with counted_passes("run_next_tokens", plain) as taken:
            logits.append(model(ids[:, :1], longer, past_key_values=cache).logits)
        assert bool(taken) is not plain
    torch.testing.assert_close(*logits, **EXACT)


@kinds
@pytest.mark.parametrize(
    ("lengths", "dtype"), [([5], torch.float32), ([7, 3, 5], torch.float64)], ids=["one", "three"]
)
@pytest.mark.parametrize("beams", [1, 4], ids=["greedy", "beams"])
def test_texts_are_written_alike_in_both_ways(kind, lengths, beams, dtype):
    _, model = build(kind, dtype)
    inputs = {**left_padded(lengths), "num_beams": beams}
    ours, steps = written(model, **inputs)
    theirs, none = written(model, plain=True, **inputs)
    assert (steps > 40, none) == (True, 0)
    assert ours == theirs


@kinds
@pytest.mark.parametrize("beams", [False, True], ids=["sampled", "beams"])
def test_rows_that_have_ended_leave(kind, beams):
    _, model = build(kind)
    inputs = left_padded([7, 3, 5, 4, 6, 2, 9]) | {"eos_token_id": list(range(3, 20))}
    inputs |= {"min_new_tokens": 3, "max_new_tokens": 40, "no_repeat_ngram_size": 2}
    inputs |= {"num_beams": 3, "early_stopping": True} if beams else SAMPLED
    ours, rows = generated(model, **inputs)
    theirs, _ = generated(model, plain=True, **inputs)
    assert len(set(rows)) > 1
    assert ours.tolist() == theirs.tolist()


@kinds
def test_in_half_precision_scores_are_as_near_to_the_exact_ones_as_those_of_modules(kind):
    family, model = build(kind)
    ids = torch.tensor(random_rows([40, 40]))
    with torch.no_grad():
        exact = family.at_once(model.double(), ids)
        model = model.bfloat16()
        quick = family.steps(model, ids, 1)
        with fast.disabled():
            slow = family.steps(model, ids, 1)
    assert quick.dtype == torch.bfloat16
    lost, allowed = ((logits - exact).abs().mean() for logits in (quick, slow))
    assert lost <= 1.2 * allowed


def test_a_draft_of_fewer_layers_finds_its_tables():
    """By early exit a model is its own assistant."""
    _, model = build("alibi", num_hidden_layers=3)
    model.config.num_hidden_layers = 2
    ours, steps = written(model, **left_padded([7, 3]))
    theirs, _ = written(model, plain=True, **left_padded([7, 3]))
    assert steps
    assert ours == theirs


@pytest.mark.parametrize("kind", ["relative", "relative_per_layer"])
def test_a_table_that_changes_counts_from_the_next_step_on(kind):
    _, model = build(kind)
    parameters = [p for name, p in model.named_parameters() if "decoder.score_bias" in name]

    def change(ids, scores):
        if ids.shape[1] == 12:
            with torch.no_grad():
                for parameter in parameters:
                    parameter.mul_(-1)
        return scores

    outputs = []
    for plain in (False, True):
        texts, _ = written(model, plain, **left_padded([7, 3]), logits_processor=[change])
        outputs.append(texts)
        change(torch.zeros(1, 12), None)
    unchanged, _ = written(model, **left_padded([7, 3]))
    assert outputs[0] == outputs[1] != unchanged


@kinds
def test_bias_of_a_pair_is_that_of_its_distance(kind):
    """The tables of fast paths beside what the modules look up."""
    _, model = build(kind, torch.float64)
    stack = model.get_decoder()
    states = torch.zeros(1, 150, 1, dtype=torch.float64)
    expected = torch.cat(stack.score_bias(states))
    found = biases.of_whole_sequences(stack, 150, torch.float64).expand(
        len(expected), 1, -1, -1, -1
    )
    earlier = torch.ones(150, 150, dtype=torch.bool).tril()
    assert torch.equal(found[:, 0].where(earlier, 0), expected.where(earlier, 0))
    assert (found[:, 0].masked_select(~earlier) == -torch.inf).all()
