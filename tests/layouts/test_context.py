"""Where texts are divided, accelerate finds the mask of our layers, and refuses a window."""

from unittest.mock import patch

import pytest
import torch
from accelerate.big_modeling import _attach_context_parallel_hooks
from torch import nn

from support.families import DECODER


def test_accelerate_takes_away_the_mask_and_asks_for_causal_attention():
    model = DECODER.build().train()
    _attach_context_parallel_hooks(model)
    attend = nn.functional.scaled_dot_product_attention
    with patch.object(nn.functional, "scaled_dot_product_attention", wraps=attend) as called:
        # As the first of two processes: a piece from the front of a text and one from the back.
        places = torch.tensor([[0, 1, 6, 7]])
        model(torch.tensor([[5, 6, 7, 8]]), position_ids=places)
    assert called.call_count == 2
    for call in called.call_args_list:
        assert call.kwargs["attn_mask"] is None
        assert call.kwargs["is_causal"]


def test_accelerate_refuses_to_divide_texts_under_a_window():
    with pytest.raises(ValueError, match="sliding_attention"):
        _attach_context_parallel_hooks(DECODER.build(sliding_window=4))
