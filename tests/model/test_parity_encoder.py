"""The encoder-only family computes what transformers' encoders do, given the same weights."""

import pytest

from support.parity import assert_parity
from support.parity_encoder import CASES, even_batch, padded_batch


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("name", CASES)
def test_a_padded_batch_scores_and_trains_as_in_transformers(name, backend):
    case = CASES[name]
    ours, theirs = case.build(backend)
    head = type(ours).__name__.removeprefix("TformerEncoder")
    assert_parity(ours, theirs, padded_batch(theirs.config, head))


@pytest.mark.parametrize("name", [name for name in CASES if "QuestionAnswering" in name])
def test_questions_and_answers_train_as_in_transformers(name):
    assert_parity(*CASES[name].build("sdpa"), even_batch())
