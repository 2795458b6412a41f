"""Test that your model keeps the promises of hf_tformer: run python -m pytest on this folder."""

import pytest
import torch

from hf_tformer.testing import DecoderPromises

from .configuration_mine import MineConfig
from .modeling_mine import MineAttention, MineForCausalLM


class TestMine(DecoderPromises):
    model_class = MineForCausalLM
    fields = {"first_temperature": 0.7}  # beside those of a small model
    waived = {}  # such as {"packing": "sequences in one row may attend to each other"}


@torch.no_grad()
def test_a_higher_temperature_sharpens_attention() -> None:
    """Only you know what your own layer promises: test it here."""
    config = MineConfig(first_temperature=2.0, attn_implementation="eager")
    attention, states = MineAttention(config, 0, is_causal=False), torch.randn(1, 9, 512)
    largest = []
    for temperature in (0.5, 2.0):
        attention.temperature.fill_(temperature)
        largest.append(attention(states)[1].max(-1).values.mean())
    assert largest[0] < largest[1]


def test_a_temperature_below_zero_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="first_temperature is -1"):
        MineConfig(first_temperature=-1)
