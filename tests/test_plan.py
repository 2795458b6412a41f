"""What a training will take: operations, memory, traffic and time, said before it begins."""

import pytest
import torch
from families import DECODER, ENCODER
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig

import hf_tformer
from hf_tformer.plan import training_flops

ROWS, LENGTH = 2, 12


@pytest.mark.parametrize("changes", [{}, {"mlp_type": "gated", "qk_norm": True}], ids=str)
def test_operations_are_those_that_torch_counts(family, changes):
    """Eager attention computes hidden keys too; one token of each row, source and target alike."""
    model = family.build("eager", **changes).train()
    ids = torch.randint(3, model.config.vocab_size, (ROWS, LENGTH))
    with FlopCounterMode(display=False) as counter:
        model(ids, labels=ids, return_logits=True).loss.backward()
    expected = ROWS * LENGTH * training_flops(model.config, LENGTH, sees_all=True)
    assert counter.get_total_flops() == expected


@pytest.mark.parametrize("family", [DECODER, ENCODER], ids=lambda family: family.name)
@pytest.mark.parametrize("window", [None, 5])
def test_hidden_keys_are_not_counted(family, window):
    config = family.build(sliding_window=window).config
    kinds = getattr(config, "layer_types", ["full_attention"] * config.num_hidden_layers)
    reaches = [window if kind == "sliding_attention" else LENGTH for kind in kinds]
    hidden = sum(
        not (abs(query - key) < reach and (family is ENCODER or key <= query))
        for reach in reaches
        for query in range(LENGTH)
        for key in range(LENGTH)
    )
    saved = training_flops(config, LENGTH, sees_all=True) - training_flops(config, LENGTH)
    each = 12 * config.num_attention_heads * config.head_dim
    assert saved * LENGTH == pytest.approx(each * hidden)


def test_a_model_of_others_takes_what_ours_of_the_same_sizes_does():
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 101}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2}
    theirs = LlamaConfig(**sizes, **heads)
    ours = hf_tformer.TformerDecoderConfig(**sizes, **heads)
    assert training_flops(theirs, 64) == training_flops(ours, 64)
