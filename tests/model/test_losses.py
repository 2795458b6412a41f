"""The loss is the one on paper, under smoothing, padding and accumulation alike."""

import pytest
import torch
from torch.nn.functional import cross_entropy, log_softmax

from support.families import DECODER, SEQ2SEQ, by_writers, random_rows

ROWS = random_rows([9, 3, 7, 5, 8, 2, 6, 4])
TARGETS = random_rows([4, 6, 3, 8, 2, 7, 5, 9], seed=1)


def batch_of(family, rows=slice(None)):
    return family.training_batch(ROWS[rows], TARGETS[rows])


def test_the_loss_is_the_mean_over_the_labels_that_count(family):
    model, batch = family.build(), batch_of(family)
    output = model(**batch)
    logits, labels = family.shifted(output.logits, batch["labels"])
    expected = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    torch.testing.assert_close(output.loss, expected)


def test_the_last_label_of_the_encoder_decoder_is_learned():
    """A loss shifted twice would never look at it."""
    model, batch = SEQ2SEQ.build(), batch_of(SEQ2SEQ, slice(0, 1))
    batch["labels"][:, :-1] = -100
    loss = model(**batch).loss
    loss.backward()
    assert loss > 0
    assert model.lm_head.weight.grad.abs().sum() > 0


def test_the_decoder_predicts_the_next_token_not_the_same_one():
    model = DECODER.build()
    ids = torch.tensor(random_rows([2]))
    logits = model(ids).logits
    expected = cross_entropy(logits[:, 0], ids[:, 1])
    torch.testing.assert_close(model(ids, labels=ids).loss, expected)


def test_labels_that_are_shifted_already_are_taken_as_they_are():
    model = DECODER.build()
    ids = torch.tensor(random_rows([7]))
    shifted = torch.cat((ids[:, 1:], torch.tensor([[-100]])), dim=1)
    torch.testing.assert_close(
        model(ids, labels=ids, shift_labels=shifted).loss, model(ids, labels=ids).loss
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("z_loss", [0.0, 1e-2])
def test_smoothing_and_z_loss_follow_their_formulas(family, smoothing, z_loss):
    model = family.build(label_smoothing=smoothing, z_loss=z_loss)
    batch = batch_of(family)
    output = model(**batch)
    logits, labels = family.shifted(output.logits, batch["labels"])
    logits, labels = logits[labels != -100], labels[labels != -100]
    log_probabilities = log_softmax(logits, dim=-1)
    expected = -(1 - smoothing) * log_probabilities.gather(1, labels[:, None]).mean()
    expected = expected - smoothing * log_probabilities.mean()
    expected = expected + z_loss * logits.logsumexp(-1).square().mean()
    torch.testing.assert_close(output.loss, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("as_tensor", [True, False])
def test_accumulated_parts_give_the_gradient_of_the_whole_batch(family, smoothing, as_tensor):
    """Batch 8 = batch 2 × 4, with unequal padding: the count of the whole divides each part."""
    model = family.build(label_smoothing=smoothing).double()
    whole = batch_of(family)
    _, labels = family.shifted(whole["labels"][..., None], whole["labels"])
    count = (labels != -100).sum()
    count = count if as_tensor else int(count)
    model(**whole).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    for i in range(0, 8, 2):
        model(**batch_of(family, slice(i, i + 2)), num_items_in_batch=count).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-9, atol=1e-11)


def test_a_batch_without_labels_has_a_loss_of_zero_not_nan(family):
    model, batch = family.build(), batch_of(family)
    batch["labels"].fill_(-100)
    extra = family.target(batch["input_ids"][:, : batch["labels"].shape[1]])
    for count in (None, 0, torch.tensor(0)):
        loss = model(**batch, **extra, num_items_in_batch=count).loss
        assert loss == 0
        loss.backward()


def test_every_parameter_learns(family):
    model = family.build(qk_norm=True, embedding_norm=True, final_norm=True, lm_head_bias=True)
    model(**batch_of(family)).loss.backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


def test_a_key_bias_is_the_one_parameter_that_cannot_learn():
    """Softmax does not feel a constant added to every score, so its gradient is zero up to
    rounding."""
    model = DECODER.build(attention_bias=True, position_embedding_type="none")
    model(**batch_of(DECODER)).loss.backward()
    assert model.model.layers[0].self_attn.k_proj.bias.grad.abs().max() < 1e-5
    assert model.model.layers[0].self_attn.q_proj.bias.grad.abs().max() > 1e-5


@by_writers
def test_a_training_step_makes_no_cache(family):
    model, batch = family.build(), batch_of(family)
    assert model.config.use_cache
    assert model(**batch).past_key_values is None
    model.train()
    del batch["labels"]
    extra = family.target(batch["input_ids"])
    assert model(**batch, **extra).past_key_values is None


def test_decoder_inputs_are_the_labels_one_place_later():
    model = SEQ2SEQ.build()
    labels = torch.tensor([[5, 6, 2], [7, -100, -100]])
    expected = [[1, 5, 6], [1, 7, 0]]
    assert model.prepare_decoder_input_ids_from_labels(labels).tolist() == expected


def test_decoder_inputs_without_a_start_token_are_refused_by_name():
    model = SEQ2SEQ.build(decoder_start_token_id=None)
    with pytest.raises(ValueError, match="decoder_start_token_id is None"):
        model(**batch_of(SEQ2SEQ))
