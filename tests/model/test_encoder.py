"""What only an encoder has: sight to both sides, windows, rotations by kind of layer, its heads."""

import pytest
import torch
from transformers import AutoConfig, default_data_collator

import hf_tformer
from hf_tformer.testing import simulated_flash
from support.families import ENCODER, pad, random_rows
from support.parity import randomise
from support.training import gradients, train

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
ROWS = random_rows([7, 12, 1, 9])
SLIDING = ["sliding_attention"] * 2
ROPES = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 2.0, "original_max_position_embeddings": 8},
    "longrope": {"short_factor": [1.0] * 5, "long_factor": [2.0] * 5, "factor": 2.0},
    "llama3": {
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    },
}


def rope(name):
    return {"rope_type": name, "rope_theta": 500.0, **ROPES[name]}


# Windows


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("window", [1, 3])
@torch.no_grad()
def test_a_layer_sees_the_tokens_nearer_than_its_window_on_both_sides(backend, window, side):
    """As a mask says it that is written out here; beside windows the rotations are flat."""
    flat = {"rope_parameters": {"rope_type": "default"}}
    ids, mask = pad(ROWS, side)
    real = mask.bool()
    places = torch.arange(ids.shape[1])
    near = (places - places[:, None]).abs() < window
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    wide = ENCODER.build("eager", sliding_window=None, **flat)
    expected = wide(ids, (near & real[:, None])[:, None], position_ids=positions).logits
    model = ENCODER.build(backend, sliding_window=window, layer_types=SLIDING, **flat)
    torch.testing.assert_close(model(ids, mask).logits[real], expected[real], **CLOSE)


@torch.no_grad()
def test_a_token_beyond_the_window_changes_nothing(backend):
    options = {"num_hidden_layers": 1, "layer_types": SLIDING[:1], "sliding_window": 3}
    model, ids = ENCODER.build(backend, **options), torch.tensor(random_rows([9]))
    changed = ids.clone()
    changed[0, 4] = (changed[0, 4] + 1) % 101
    difference = (model(ids).logits - model(changed).logits).abs().amax(-1)[0]
    assert (difference > 1e-6).tolist() == [abs(i - 4) < 3 for i in range(9)]


# Packed texts


def pack(rows):
    ids = torch.tensor([[token for row in rows for token in row]])
    return ids, torch.tensor([[place for row in rows for place in range(len(row))]])


@pytest.mark.parametrize("all_ones", [False, True], ids=["no mask", "a mask that hides nothing"])
@torch.no_grad()
def test_packed_texts_never_see_each_other_in_either_direction(backend, all_ones):
    model = ENCODER.build(backend)
    ids, positions = pack(ROWS)
    mask = torch.ones_like(ids) if all_ones else None
    alone = torch.cat(ENCODER.logits(model, ROWS))
    found = model(ids, mask, position_ids=positions).logits[0]
    torch.testing.assert_close(found, alone, **CLOSE)
    assert not torch.allclose(model(ids).logits[0], alone, **CLOSE)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_several_rows_may_be_packed_differently(attention):
    model, parts = ENCODER.build(attention), (ROWS[:2], ROWS[1::-1])
    ids, positions = (torch.cat(tensors) for tensors in zip(*map(pack, parts), strict=True))
    for logits, rows in zip(model(ids, position_ids=positions).logits, parts, strict=True):
        torch.testing.assert_close(logits, torch.cat(ENCODER.logits(model, rows)), **CLOSE)


def test_flash_attention_refuses_several_packed_rows_in_a_sentence(monkeypatch):
    simulated_flash.install(monkeypatch)
    model, (ids, positions) = ENCODER.build("flash_attention_2"), pack(ROWS)
    with pytest.raises(ValueError, match=r"batch of 2.*pack them into one sequence"):
        model(ids.repeat(2, 1), position_ids=positions.repeat(2, 1))


@torch.no_grad()
def test_packed_texts_given_by_their_boundaries_never_see_each_other_on_flash(monkeypatch):
    """As sentence-transformers gives them."""
    simulated_flash.install(monkeypatch)
    model, (ids, positions) = ENCODER.build("flash_attention_2"), pack(ROWS)
    lengths = torch.tensor([0, *map(len, ROWS)], dtype=torch.int32)
    boundaries = lengths.cumsum(0).to(torch.int32)
    given = {"cu_seq_lens_q": boundaries, "cu_seq_lens_k": boundaries}
    longest = {"max_length_q": int(lengths.max()), "max_length_k": int(lengths.max())}
    found = model(ids, position_ids=positions, **given, **longest).logits[0]
    torch.testing.assert_close(found, torch.cat(ENCODER.logits(model, ROWS)), **CLOSE)


# Rotations


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "by kind"])
@torch.no_grad()
def test_every_type_of_rotation_is_the_same_on_every_backend_and_after_loading(
    name, nested, backend, tmp_path
):
    plain = {"rope_type": "default", "rope_theta": 50.0}
    given = {"full_attention": rope(name), "sliding_attention": plain} if nested else rope(name)
    options = {"rope_parameters": given, "max_position_embeddings": 8}
    model = ENCODER.build(backend, **options)
    found = ENCODER.logits(model, ROWS)
    torch.testing.assert_close(found, ENCODER.logits(ENCODER.build("eager", **options), ROWS))
    model.save_pretrained(tmp_path)
    loaded = ENCODER.model_class.from_pretrained(tmp_path, attn_implementation="sdpa")
    assert loaded.config.rope_parameters == model.config.rope_parameters
    torch.testing.assert_close(ENCODER.logits(loaded, ROWS), found, **CLOSE)


@torch.no_grad()
def test_each_kind_of_layer_is_rotated_at_its_own_pace():
    """Two equal dicts are one flat one; a change in either is heard."""
    first, second = ({"rope_type": "default", "rope_theta": theta} for theta in (100.0, 5000.0))

    def logits(full, sliding):
        both = {"full_attention": full, "sliding_attention": sliding}
        return torch.cat(ENCODER.logits(ENCODER.build(rope_parameters=both), ROWS))

    flat = torch.cat(ENCODER.logits(ENCODER.build(rope_parameters=first), ROWS))
    assert torch.equal(logits(first, first), flat)
    for changed in (logits(first, second), logits(second, first)):
        assert not torch.allclose(changed, flat, **CLOSE)


def test_rotary_parameters_of_a_kind_that_is_not_there_are_let_go():
    both = {"full_attention": rope("linear"), "sliding_attention": rope("yarn")}
    config = ENCODER.config(sliding_window=None, rope_parameters=both)
    assert config.rope_parameters["rope_type"] == "linear"


@pytest.mark.parametrize("old", [{"rope_theta": 77.0}, {"partial_rotary_factor": 0.4}], ids=str)
def test_what_is_said_in_old_words_counts_for_each_kind_that_does_not_say_it(old, tmp_path):
    kinds = {"full_attention": {"rope_type": "linear", "factor": 2.0}, "sliding_attention": {}}
    config = ENCODER.config(rope_parameters=kinds, **old)
    config.save_pretrained(tmp_path)
    for found in (config, AutoConfig.from_pretrained(tmp_path)):
        assert set(found.rope_parameters) == set(kinds)
        for parameters in found.rope_parameters.values():
            assert parameters["rope_theta"] == old.get("rope_theta", 10000.0)
            assert old.items() <= parameters.items()


# Types, and what distances add


@torch.no_grad()
def test_tokens_of_another_type_are_others_and_the_first_type_is_the_default(backend):
    model, ids = ENCODER.build(backend, type_vocab_size=2), torch.tensor(random_rows([6, 6]))
    types = torch.tensor([[0] * 6, [0] * 3 + [1] * 3])
    plain, typed = model(ids).logits, model(ids, token_type_ids=types).logits
    torch.testing.assert_close(typed[0], plain[0], **CLOSE)
    assert not torch.allclose(typed[1], plain[1], **CLOSE)


def test_what_distances_add_to_scores_is_refused_where_it_would_be_dropped(monkeypatch):
    simulated_flash.install(monkeypatch)
    model = ENCODER.build("flash_attention_2", score_bias="relative")
    words = r"score_bias is 'relative', which flash_attention_2 attention cannot add"
    with pytest.raises(ValueError, match=words):
        ENCODER.logits(model, ROWS)


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_what_distances_add_to_scores_is_learned_beside_checkpointed_layers(reentrant):
    """Every layer reads the one table: each has to hand its gradient on."""
    model, batch = ENCODER.build(score_bias="relative").train(), ENCODER.training_batch(ROWS)
    model.enable_input_require_grads()
    expected = gradients(model, **batch)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    torch.testing.assert_close(gradients(model, **batch), expected)


# Heads


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_a_text_in_a_padded_batch_is_classified_as_it_is_alone(backend, pooling, side):
    options = {"num_labels": 3, "classifier_pooling": pooling}
    model = ENCODER.build(backend, hf_tformer.TformerEncoderForSequenceClassification, **options)
    together = model(*pad(ROWS, side)).logits
    alone = torch.cat([model(torch.tensor([row])).logits for row in ROWS])
    torch.testing.assert_close(together, alone, **CLOSE)


def test_only_tokens_with_a_label_pass_the_head_in_training():
    model, batch, seen = ENCODER.build().train(), ENCODER.training_batch(ROWS), []
    model.transform.register_forward_hook(lambda *args: seen.append(args[2].shape))
    model(**batch)
    assert seen == [((batch["labels"] != -100).sum(), 36)]


@pytest.mark.parametrize(
    ("head", "labels"),
    [
        ("SequenceClassification", {"labels": 1}),
        ("TokenClassification", {"labels": [2, -100]}),
        ("QuestionAnswering", {"start_positions": 0, "end_positions": 1}),
    ],
)
def test_a_head_takes_the_same_step_however_the_batch_is_accumulated(head, labels, tmp_path):
    rows = [{"input_ids": row, **labels} for row in random_rows([2] * 8)]
    losses, weights = [], []
    for size, parts in ((8, 1), (2, 4)):
        model_class = getattr(hf_tformer, f"TformerEncoderFor{head}")
        model = ENCODER.build(model_class=model_class, num_labels=3)
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": parts}
        losses.append(train(ENCODER, model, tmp_path, default_data_collator, rows=rows, **options))
        weights.append(model.state_dict())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(*weights)


def test_the_body_of_a_masked_language_model_opens_alone_without_complaint(tmp_path):
    ENCODER.build(tie_word_embeddings=False).save_pretrained(tmp_path)
    _, report = ENCODER.base_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]


def test_heads_load_from_a_masked_language_model_and_keep_its_body(tmp_path):
    ENCODER.build().save_pretrained(tmp_path)
    body = ENCODER.model_class.from_pretrained(tmp_path).model.state_dict()
    for task in ("SequenceClassification", "TokenClassification", "QuestionAnswering"):
        head_class = getattr(hf_tformer, f"TformerEncoderFor{task}")
        head = head_class.from_pretrained(tmp_path, num_labels=3)
        assert all(torch.equal(head.model.state_dict()[name], body[name]) for name in body)
        randomise(head).save_pretrained(tmp_path / task)
        again = head_class.from_pretrained(tmp_path / task)
        ids = torch.tensor(random_rows([7]))
        torch.testing.assert_close(again(ids).to_tuple(), head.eval()(ids).to_tuple())


def test_attention_and_hidden_states_of_every_layer_can_be_seen():
    model, ids = ENCODER.build("eager"), torch.tensor(random_rows([9, 9]))
    output = model(ids, output_attentions=True, output_hidden_states=True)
    assert [tuple(weights.shape) for weights in output.attentions] == [(2, 6, 9, 9)] * 2
    assert [tuple(states.shape) for states in output.hidden_states] == [(2, 9, 36)] * 3
    places = torch.arange(9)
    hidden = (places - places[:, None]).abs() >= 4
    everywhere, near = output.attentions
    assert everywhere[:, :, hidden].all()
    assert not near[:, :, hidden].any()
