"""The encoder-decoder family computes what Marian, BART, T5 and their kin do, given the weights."""

import pytest
import torch

from support.parity import assert_parity
from support.parity_seq2seq import (
    CASES,
    even_batch,
    left_padded_source,
    right_padded_batch,
)


@pytest.fixture(params=["eager", "sdpa"])
def backend(request):
    return request.param


@pytest.fixture(params=CASES)
def pair(request, backend):
    return CASES[request.param].build(backend)


def test_an_even_batch_scores_and_trains_as_in_transformers(pair):
    assert_parity(*pair, even_batch())


def test_a_right_padded_batch_scores_and_trains_as_in_transformers(pair):
    assert_parity(*pair, right_padded_batch())


@pytest.mark.parametrize("case", ["t5", "umt5"])
def test_a_left_padded_source_of_t5_scores_and_trains_as_in_transformers(case, backend):
    assert_parity(*CASES[case].build(backend), left_padded_source())


@pytest.mark.parametrize("case", ["marian", "bart", "t5 flan"])
def test_labels_alone_are_read_as_transformers_reads_them(case):
    batch = right_padded_batch()
    del batch["decoder_input_ids"], batch["decoder_attention_mask"]
    ours, theirs = (model(**batch) for model in CASES[case].build("sdpa"))
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-4, atol=1e-5)
