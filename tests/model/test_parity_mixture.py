"""The mixture of experts computes what transformers' mixtures do, given the same weights."""

import pytest
import torch

from support.parity import assert_close, assert_parity
from support.parity_decoder import even_batch, left_padded_batch
from support.parity_mixture import BALANCED, CASES, mixtral


@pytest.fixture(params=["eager", "sdpa"])
def backend(request):
    return request.param


@pytest.fixture(params=CASES)
def pair(request, backend):
    return CASES[request.param].build(backend)


def test_an_even_batch_scores_and_trains_as_in_transformers(pair):
    assert_parity(*pair, even_batch())


def test_a_left_padded_batch_scores_and_trains_as_in_transformers(pair):
    batch = left_padded_batch()
    positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    assert_parity(*pair, batch, for_theirs={"position_ids": positions})


def test_the_balance_loss_is_that_of_transformers_and_counts_no_padding():
    ours, theirs = mixtral(**BALANCED).build("eager")
    batch = left_padded_batch()
    positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    expected = theirs(**batch, position_ids=positions)
    output = ours(**batch)
    assert_close("balance", output.aux_loss, expected.aux_loss)
    assert_close("loss", output.loss, expected.loss)
    without = ours(**{**batch, "attention_mask": torch.ones_like(batch["attention_mask"])})
    assert (without.aux_loss - output.aux_loss).abs() > 1e-4
