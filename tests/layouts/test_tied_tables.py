"""Tied tables that cannot be cut are refused in words."""

import pytest
from transformers.distributed import DistributedConfig

from support.families import DECODER, ENCODER

from .processes import new_layouts

BOTH = {"fsdp_size": 2, "tp_size": 2}


@new_layouts
@pytest.mark.parametrize("family", [DECODER, ENCODER], ids=lambda family: family.name)
def test_a_tied_table_that_four_processes_cannot_share_is_refused(family):
    model = family.build()
    with pytest.raises(ValueError, match=r"vocab_size is 101.* = 4 unequal parts: add 3 tokens"):
        model.maybe_distribute_model(model, DistributedConfig(**BOTH), None)
    for model in (family.build(vocab_size=104), family.build(tie_word_embeddings=False)):
        assert model.maybe_distribute_model(model, DistributedConfig(**BOTH), None) is model
