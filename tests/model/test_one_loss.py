"""One batch has one loss: padded on either side, in training and evaluation, on every backend."""

import pytest
import torch
from torch import nn

from hf_tformer import fast
from support.families import DECODER, SEQ2SEQ, pad, random_rows

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
ROWS = random_rows([7, 3, 5, 1])


def batch_of(side):
    ids, mask = pad(ROWS, side)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def loss_of_single_texts(model):
    """The mean over all tokens but the first of each text, from the logits of each text alone."""
    losses = []
    for row in ROWS:
        ids = torch.tensor([row])
        with torch.no_grad():
            logits = model(ids).logits[0, :-1]
        losses.append(nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none"))
    return torch.cat(losses).mean()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mode", ["training", "evaluation", "without fast paths"])
def test_a_batch_has_the_loss_of_its_texts(side, mode, backend):
    model = DECODER.build(backend)
    expected = loss_of_single_texts(model)
    model.train(mode == "training")
    if mode == "training":
        actual = model(**batch_of(side)).loss.detach()
    else:
        with torch.no_grad():
            actual = model(**batch_of(side)).loss
        if mode == "without fast paths":
            with fast.disabled(), torch.no_grad():
                actual = model(**batch_of(side)).loss
    torch.testing.assert_close(actual, expected, **CLOSE)


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_padding_whose_labels_were_not_hidden_teaches_nothing_that_padding_predicts(mode):
    model = DECODER.build().train(mode == "training")
    ids, mask = pad(ROWS, "left")
    hidden = model(ids, mask, labels=ids.masked_fill(mask == 0, -100)).loss
    torch.testing.assert_close(model(ids, mask, labels=ids).loss, hidden, **CLOSE)


def test_labels_beside_a_cache_are_those_of_the_new_tokens():
    model = DECODER.build()
    ids, mask = pad(ROWS[:3], "left")
    with torch.no_grad():
        logits = model(ids, mask).logits
        past = model(ids[:, :3], mask[:, :3], use_cache=True).past_key_values
        actual = model(ids[:, 3:], mask, past_key_values=past, labels=ids[:, 3:]).loss
    labels = ids[:, 4:].masked_fill(mask[:, 3:-1] == 0, -100)
    expected = nn.functional.cross_entropy(logits[:, 3:-1].flatten(0, 1), labels.flatten())
    torch.testing.assert_close(actual, expected, **CLOSE)


def test_a_padded_target_teaches_nothing_where_it_is_padding(backend):
    model = SEQ2SEQ.build(backend)
    source = torch.tensor(random_rows([5, 5]))
    target, mask = pad([[1, 4, 5, 6], [1, 7]], "left")
    labels = torch.tensor([[4, 5, 6, 2], [9, 9, 7, 2]])
    given = {"input_ids": source, "decoder_input_ids": target, "decoder_attention_mask": mask}
    with torch.no_grad():
        actual = model(**given, labels=labels).loss
        expected = model(**given, labels=labels.masked_fill(mask == 0, -100)).loss
    assert torch.equal(actual, expected)
