"""`make exports` writes docs/EXPORTS.md from what tests/runtimes/test_table.py finds."""

import os

import pytest
import torch

from support.families import DECODER
from support.paths import ROOT

# Without VNNI the eight-bit products of oneDNN overflow, which CTranslate2 would use.
if torch.backends.cpu.get_cpu_capability() != "AVX512":
    os.environ.setdefault("CT2_USE_MKL", "1")

PAGE = ROOT / "docs" / "EXPORTS.md"


def pytest_addoption(parser):
    parser.addoption("--write-exports", action="store_true", help="write docs/EXPORTS.md")


@pytest.fixture(scope="session")
def table(request):
    """Rows to be added to the page, in the order in which the tests find them."""
    rows = []
    yield rows
    if request.config.getoption("--write-exports") and rows:
        from support.exports_page import page

        PAGE.write_text(page(rows), encoding="utf-8")


@pytest.fixture
def trained(tmp_path):
    """A folder of a decoder with a tokenizer of its own, and that tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    words.train_from_iterator(["to be or not to be, that is the question"], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    model = DECODER.build(vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2)
    # It writes whole words: bytes that are no text are shown by each tool in its own way.
    with torch.no_grad():
        model.get_output_embeddings().weight[:259] *= 0.1
    model.save_pretrained(tmp_path / "ours")
    tokenizer.save_pretrained(tmp_path / "ours")
    return model, tokenizer
