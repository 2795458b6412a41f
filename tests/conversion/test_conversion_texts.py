"""What an imported model writes is what transformers writes with the checkpoint it came from."""

import pytest
import torch

from conversion import import_checkpoint
from hf_tformer import TformerDecoderForCausalLM
from support import parity_decoder as decoders
from support.converting import CASES, save_theirs

pytestmark = [pytest.mark.usefixtures("warm_python"), pytest.mark.slow]

NAMES = ("gpt_neox", "gptj", "phi yarn", "falcon 7b", "falcon 40b", "cohere biases", "cohere2")
NAMES += ("granite biases", "stablelm beside the mlp", "granite4 no positions")
NAMES += ("hyperclovax biases", "cwm", "ministral windows", "jais2", "vaultgemma")
WAYS = {"greedy": {}, "beams": {"num_beams": 3}}


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_those_of_transformers_token_by_token(name, tmp_path):
    """Rows of three lengths, padded on the left; windows and rotations go on beyond the prompt."""
    theirs = save_theirs(CASES[name], tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    ours = TformerDecoderForCausalLM.from_pretrained(tmp_path / "ours")
    batch = decoders.left_padded_batch()
    del batch["labels"]
    for way, own in WAYS.items():
        options = {"max_new_tokens": 7, "do_sample": False, "pad_token_id": 0, **own}
        options |= {"return_dict_in_generate": True, "output_logits": True}
        found, expected = (model.generate(**batch, **options) for model in (ours, theirs))
        assert torch.equal(found.sequences, expected.sequences), way
        logits = (torch.stack(answer.logits) for answer in (found, expected))
        torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)
