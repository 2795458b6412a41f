"""Texts that are written by the stages of transformers' own pipeline."""

import torch
import torch.distributed as dist
from transformers.distributed import DistributedConfig

from support.families import DECODER, random_rows

CASES = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "an embedding of several parts": {
        "position_embedding_type": "learned",
        "scale_embedding": 3.7,
        "embedding_norm": True,
    },
    "windows": {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]},
}


def write(model):
    ids = torch.tensor(random_rows([6, 6]))
    return model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=None)


def write_in_stages(folder, expected):
    for name in CASES:
        config = DistributedConfig(pp_size=dist.get_world_size())
        model = DECODER.model_class.from_pretrained(folder / name, distributed_config=config)
        assert torch.equal(write(model.eval()), expected[name]), name
