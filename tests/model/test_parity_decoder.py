"""The decoder-only family computes what transformers' decoders do, given the same weights."""

import pytest
import torch
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from hf_tformer import TformerDecoderConfig
from hf_tformer.model.layers import MLP
from support.parity import assert_parity
from support.parity_decoder import (
    CASES,
    ROPE_TYPES,
    even_batch,
    left_padded_batch,
    llama,
)


def positions_of(batch):
    """Their models count padding unless they are told the positions; generate tells them so."""
    return {"position_ids": (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)}


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
    assert_parity(*pair, batch, for_theirs=positions_of(batch))


@pytest.mark.parametrize("case", ["llama grouped-query", "mistral sliding window", "gpt2"])
def test_rows_of_several_texts_score_and_train_as_in_transformers(case, backend):
    batch = even_batch()
    batch["position_ids"] = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1, 2, 0, 1]] * 3)
    assert_parity(*CASES[case].build(backend), batch)


@pytest.mark.parametrize("rope_type", ["default", *ROPE_INIT_FUNCTIONS])
def test_every_rotary_type_equals_that_of_llama_at_any_length(rope_type):
    maximum = 8 if rope_type == "dynamic" else 32  # the dynamic type stretches what lies beyond
    rope = {"rope_type": rope_type, "rope_theta": 100.0, **ROPE_TYPES[rope_type]}
    pair = llama(max_position_embeddings=maximum, rope_parameters=rope).build("sdpa")
    # The short length once more: the frequencies of a long input must not outlive it.
    for length in (5, 23, 5):
        assert_parity(*pair, even_batch(length))


@pytest.mark.parametrize("name", sorted(ACT2FN))
def test_every_activation_has_the_values_that_it_has_in_transformers(name):
    states = 3 * torch.randn(5, 16)
    mlp = MLP(TformerDecoderConfig(hidden_size=16, intermediate_size=16, hidden_act=name))
    theirs = ACT2FN[name].float()  # as where a model of theirs is loaded in float32
    torch.testing.assert_close(mlp.act_fn(states), theirs(states), rtol=1e-4, atol=1e-6)
