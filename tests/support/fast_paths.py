"""Variants of models and batches that the fast paths are tried on."""

import torch
from torch import nn

from support.counting import counted_passes, written
from support.families import DECODERS, SEQ2SEQ, random_rows

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
VARIANTS = {
    "as it is": {},
    "post norm": {"norm_position": "post"},
    "layer norm and plain MLP": {
        "norm_type": "layernorm",
        "mlp_type": "plain",
        "hidden_act": "gelu",
    },
    "gated MLP": {"mlp_type": "gated", "hidden_act": "silu"},
    "every bias": {"attention_bias": True, "attention_output_bias": True, "mlp_bias": True},
    "norms of heads": {"qk_norm": True},
    "learned positions": {"position_embedding_type": "learned"},
    "partial rotation": {
        "position_embedding_type": "rotary",
        "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.4},
    },
    "scale": {"attention_scale": 0.3},
}


class Adapted(nn.Linear):
    def forward(self, states):
        return super().forward(states) * 2


PADDINGS = {
    "none": [[1] * 9] * 3,
    "left": [[0] * 4 + [1] * 5, [1] * 9, [0] * 2 + [1] * 7],
    "right": [[1] * 5 + [0] * 4, [1] * 9, [1] * 7 + [0] * 2],
    "all of a row": [[1] * 9, [0] * 9, [1] * 9],
    "alike": [[0] * 3 + [1] * 6] * 3,
    "two alike": [[0] * 3 + [1] * 6] * 2 + [[1] * 9],
    "within": [[1, 1, 0, 0, 1, 1, 1, 0, 1], [1] * 9, [0, 1] * 4 + [1]],
}


def read_at_once(family, model, mask, plain=False, **options):
    """The scores at real tokens, and how often modules were left out; the source is what is read
    by an encoder-decoder."""
    ids, decoder = torch.tensor(random_rows([9, 9, 9])), {}
    if family is SEQ2SEQ:
        decoder = {"decoder_input_ids": torch.tensor([[1, 5, 4]] * 3)}
    with counted_passes("run_whole_sequences", plain) as taken, torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask, **decoder, **options)
    real = mask.bool() if family in DECODERS else mask.any(1)
    return output.logits[real], output, len(taken)


def end_of_a_row(model, inputs):
    """A token that ends one row before the last of them."""
    free, _ = written(model, **inputs)
    rows = free[:, -19:].tolist()
    return next(
        token
        for token in sum(zip(*rows, strict=True), ())
        if 0 < sum(token in row[:-2] for row in rows) < len(rows)
    )
