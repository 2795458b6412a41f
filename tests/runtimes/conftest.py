"""`make exports` writes docs/EXPORTS.md and docs/FAULTS.md from what the tests here find."""

import os

import pytest
import torch

from support.families import DECODER
from support.paths import ROOT

# Without VNNI the eight-bit products of oneDNN overflow, which CTranslate2 would use.
if torch.backends.cpu.get_cpu_capability() != "AVX512":
    os.environ.setdefault("CT2_USE_MKL", "1")

PAGE, FAULTS_PAGE = (ROOT / "docs" / f"{name}.md" for name in ("EXPORTS", "FAULTS"))
PLACES = ("transformers", "gguf", "onnx")
FAULTS_HEAD = """# Planted faults, found and named

Written by `make exports`, never by hand. Each row is a fault that converters make, planted in a
small random model. Each column is the faulty model beside the right one, as
`tformer prove RIGHT FAULTY` compares them: the first question whose answer names the fault, and
what is said of it. Nothing is planted where a cell is empty: the runtime cannot express the fault,
or, in ONNX, it is left out because each export takes seconds. `tests/runtimes/test_prove.py` also
proves that right exports of every family raise no alarm.

{found} of {planted} faults are found, {named} of them with their cause.

"""


def pytest_addoption(parser):
    parser.addoption("--write-exports", action="store_true", help="write these pages")


@pytest.fixture(scope="session")
def table(request):
    """Rows to be added to the page, in the order in which the tests find them."""
    rows = []
    yield rows
    if request.config.getoption("--write-exports") and rows:
        from support.exports_page import page

        PAGE.write_text(page(rows), encoding="utf-8")


@pytest.fixture(scope="session")
def faults(request):
    """What was said of each planted fault, by its name and where it was planted."""
    said = {}
    yield said
    if request.config.getoption("--write-exports") and said:
        FAULTS_PAGE.write_text(faults_page(said), encoding="utf-8")


def faults_page(said):
    names = list(dict.fromkeys(name for name, _ in said))
    rows = [["fault", "transformers", "GGUF", "ONNX"], ["---"] * 4]
    rows += [[name, *(said.get((name, place), "") for place in PLACES)] for name in names]
    found = [words for words in said.values() if words != "not found"]
    named = [words for words in found if "none of the usual" not in words]
    head = FAULTS_HEAD.format(planted=len(said), found=len(found), named=len(named))
    return head + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


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
