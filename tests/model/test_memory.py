"""Opening a model and generating with it takes its weights and its cache, and little besides."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM

PROGRAM = Path(__file__).parents[1] / "support" / "decode_memory.py"
MOST = 1.2  # of the weights and the cache
SLACK = 16 << 20  # bytes by which two runs of the same model differ
SIZES = {
    "vocab_size": 8_009,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 16,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "eos_token_id": None,
}
CONTESTANTS = {
    "ours": lambda: TformerDecoderForCausalLM(TformerDecoderConfig(**SIZES)),
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel's count is asked"),
]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def measured(request, tmp_path_factory):
    """Contestant → its bytes, by name, each in a process of its own."""
    found = {}
    for name, build in CONTESTANTS.items():
        folder = tmp_path_factory.mktemp(name)
        build().to(getattr(torch, request.param)).save_pretrained(folder)
        words = [sys.executable, PROGRAM, folder, request.param]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lines = (line.split() for line in done.stdout.splitlines())
        found[name] = {name: int(count) for name, count in lines}
    return found


def test_generating_takes_the_weights_the_cache_and_a_fifth(measured):
    ours = measured["ours"]
    assert ours["weights"] > 50e6  # the rest of the process is small beside them
    assert ours["peak"] < MOST * (ours["weights"] + ours["cache"])


def test_generating_takes_no_more_than_llama_of_transformers(measured):
    ours, llama = measured["ours"], measured["Llama"]
    assert ours["weights"] == llama["weights"]
    assert ours["cache"] == llama["cache"]
    assert ours["peak"] < llama["peak"] + SLACK
