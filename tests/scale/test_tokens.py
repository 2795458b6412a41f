"""Token shards: written whole, read in rows; documents that share a row never see each other."""

import itertools
import json
import pickle
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_tformer.scale import StreamedRows, TokenRows, TokensError, collate_rows, write_tokens
from hf_tformer.testing import simulated_flash
from support.families import DECODER, IGNORED, random_rows
from support.leaves import ARCHITECTURES, WINDOWS
from support.programs import Run

END = 3  # of the words below: neither the first id nor the last
CLOSE = {"rtol": 1e-4, "atol": 3e-5}


def words_tokenizer(size=50, end=END):
    """Word n is "wn" and has the id n."""
    names = {f"w{n}" if n != end else "<end>": n for n in range(size)}
    words = Tokenizer(models.WordLevel(names, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>")


def as_text(ids):
    return " ".join(f"w{n}" for n in ids)


def random_documents(draw, count, vocabulary=50):
    words = [n for n in range(vocabulary) if n != END]
    return [draw.choices(words, k=draw.choice((1, 2, 3, 5, 30))) for _ in range(count)]


def plain_row(ids):
    """The same as a loop."""
    positions, labels = [], []
    for place, token in enumerate(ids):
        begins = place == 0 or ids[place - 1] == END
        positions.append(0 if begins else positions[-1] + 1)
        labels.append(IGNORED if begins else token)
    return {"input_ids": ids, "position_ids": positions, "labels": labels}


def as_lists(rows):
    return [{name: tensor.tolist() for name, tensor in row.items()} for row in rows]


def ids_in(folder):
    """All ids of a folder, as its tokens.json says they lie."""
    about = json.loads((folder / "tokens.json").read_text())
    files = sorted(folder.glob("tokens-*.bin"))
    dtype = {"uint16": "<u2", "uint32": "<u4"}[about["dtype"]]
    return np.concatenate([np.fromfile(path, dtype) for path in files]).tolist()


def closed(documents):
    return [token for document in documents for token in (*document, END)]


@pytest.mark.parametrize("case", range(40))
def test_rows_are_the_documents_one_behind_the_other(case, tmp_path):
    draw = random.Random(case)
    vocabulary = {0: 2**16, 1: 2**16 + 1}.get(case, 50)  # large ones take seconds
    documents = random_documents(draw, draw.randint(1, 12), vocabulary)
    ids, length, shard = closed(documents), draw.randint(2, 20), draw.randint(1, 40)
    folder = tmp_path / "tokens"
    texts = map(as_text, documents)
    write_tokens(texts, words_tokenizer(vocabulary), folder, shard_tokens=shard)
    sizes = [path.stat().st_size for path in sorted(folder.glob("tokens-*.bin"))]
    assert sizes[:-1] == [shard * (2 if vocabulary <= 2**16 else 4)] * (len(sizes) - 1)
    assert ids_in(folder) == ids
    if len(ids) < length:
        with pytest.raises(TokensError, match=f"length is {length}, but .* {len(ids)} tokens"):
            TokenRows(folder, length)
        return
    rows = TokenRows(folder, length)
    starts = range(0, len(ids) - length + 1, length)
    assert as_lists(rows) == [plain_row(ids[start : start + length]) for start in starts]
    assert as_lists([rows[-1]]) == as_lists(rows[len(rows) - 1 :])
    assert {tensor.dtype for tensor in rows[0].values()} == {torch.int64}
    with pytest.raises(IndexError):
        rows[len(rows)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """200 documents in small files."""
    folder = tmp_path_factory.mktemp("written") / "tokens"
    documents = map(as_text, random_documents(random.Random(0), 200))
    write_tokens(documents, words_tokenizer(), folder, shard_tokens=100, validation=0.1)
    return folder


def test_workers_of_a_loader_read_the_rows_of_one_process(folder):
    rows = TokenRows(folder, 16)
    loader = DataLoader(rows, batch_size=4, num_workers=2, collate_fn=collate_rows)
    found = torch.cat([batch["labels"] for batch in loader])
    assert found.tolist() == [row["labels"] for row in as_lists(rows)]
    assert as_lists(pickle.loads(pickle.dumps(rows))) == as_lists(rows)


def test_the_tokenizer_lies_beside_its_tokens_and_another_is_refused(folder):
    rows = TokenRows(folder, 16)
    rows.refuse_other(AutoTokenizer.from_pretrained(folder), DECODER.config())
    with pytest.raises(TokensError, match=r"not those of the tokenizer .*: prepare them with it"):
        rows.refuse_other(words_tokenizer(51))
    with pytest.raises(TokensError, match=r"vocab_size is 49, but .* vocabulary of 50: use"):
        rows.refuse_other(config=DECODER.config(vocab_size=49))


# What is set aside


def split_ids(documents, folder, **options):
    write_tokens(map(as_text, documents), words_tokenizer(), folder, **options)
    return ids_in(folder), ids_in(folder / "validation")


@pytest.mark.parametrize("validation", [0.3, 1, 7])
def test_what_is_set_aside_are_whole_documents_chosen_by_the_seed(validation, tmp_path):
    documents = [[n % 40 + 5] * (n % 4 + 1) for n in range(30)]
    found = [
        split_ids(documents, tmp_path / name, validation=validation, seed=seed, shard_tokens=9)
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    ]
    assert found[0] == found[1] != found[2]
    for train, kept in found:
        both = [as_documents(train), as_documents(kept)]
        assert sorted([*both[0], *both[1]]) == sorted(documents)
        assert validation < 1 or len(both[1]) == validation


def as_documents(ids):
    parts = [list(part) for is_end, part in itertools.groupby(ids, END.__eq__) if not is_end]
    assert closed(parts) == ids
    return parts


def test_documents_without_text_are_left_out(tmp_path):
    found = write_tokens(["", "w5 w6", " \n", "w7"], words_tokenizer(), tmp_path / "tokens")
    assert ids_in(tmp_path / "tokens") == [5, 6, END, 7, END]
    assert found["train"].documents == 2


# What is refused

WRITING = {
    "no text": ({"documents": ["", " "]}, "there is no text: give at least one"),
    "no documents": ({"documents": []}, "there is no text: give at least one"),
    "no strings": ({"documents": ["w1", None]}, "document 1 is a NoneType, not text: choose"),
    "no shards": ({"shard_tokens": 0}, "shard_tokens is 0: give at least 1"),
    "half documents": ({"validation": 1.5}, "validation is 1.5: give a share"),
    "all set aside": ({"validation": 2}, "validation is 2 of 2 .* none for train: give more"),
    "none set aside": ({"validation": 1e-9}, "none for validation: give more documents"),
    "no end": ({"tokenizer": "no end"}, "no end token, which separates documents: choose"),
    "a full folder": ({"folder": "full"}, "full exists and is not empty: choose another folder"),
    "a file": ({"folder": "full/file"}, "file exists and is not empty: choose another folder"),
}


@pytest.mark.parametrize("case", WRITING)
def test_what_cannot_be_written_is_refused_in_a_sentence_and_nothing_is_left(case, tmp_path):
    given, sentence = WRITING[case]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    tokenizer = words_tokenizer()
    if "tokenizer" in given:
        tokenizer.eos_token = None
    given = {"documents": ["w1", "w2"], "folder": "new/tokens", **given, "tokenizer": tokenizer}
    given["folder"] = tmp_path / given["folder"]
    with pytest.raises(TokensError, match=sentence):
        write_tokens(**given)
    left = {path for path in tmp_path.rglob("*") if not path.is_dir()}
    assert left == {tmp_path / "full" / "file"}
    assert not list(tmp_path.rglob("*.partial"))


def change_about(**changes):
    def change(folder):
        path = folder / "tokens.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def shorten(name, by=1):
    def change(folder):
        path = folder / name
        path.write_bytes(path.read_bytes()[:-by])

    return change


def put_large_id(folder):
    path = folder / "tokens-00001.bin"
    path.write_bytes(np.array([50], "<u2").tobytes() + path.read_bytes()[2:])


DAMAGE = {
    "not there": (
        lambda folder: (folder / "tokens.json").unlink(),
        "there is no tokens.json: give",
    ),
    "not JSON": (shorten("tokens.json", 5), r"tokens.json cannot be read: prepare"),
    "a list": (lambda folder: (folder / "tokens.json").write_text("[]"), "format .* is None"),
    "a later format": (change_about(format=2), "format .* is 2, and this version reads 1: prep"),
    "no number": (change_about(tokens="many"), "tokens in .*tokens.json is 'many': prepare"),
    "another dtype": (change_about(dtype="int8"), "does not say how the files are written"),
    "a missing file": (lambda folder: (folder / "tokens-00001.bin").unlink(), "01.bin is missing"),
    "a short file": (shorten("tokens-00000.bin"), "00.bin has 9 bytes, and tokens.json says 10"),
    "a long last": (change_about(tokens=14), "02.bin has 6 bytes, and tokens.json says 8: copy"),
    "a large id": (put_large_id, "gives the id 50, but the vocabulary has 50 tokens: prepare"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_tokens_are_refused_in_a_sentence(case, tmp_path):
    damage, sentence = DAMAGE[case]
    write_tokens([as_text(range(5, 17))], words_tokenizer(), tmp_path / "tokens", shard_tokens=5)
    assert len(TokenRows(tmp_path / "tokens", 2)) == 6
    damage(tmp_path / "tokens")
    with pytest.raises(TokensError, match=sentence):
        list(TokenRows(tmp_path / "tokens", 2))


def test_a_file_that_is_cut_short_while_it_is_read_is_an_error(tmp_path):
    write_tokens([as_text(range(5, 17))], words_tokenizer(), tmp_path / "tokens")
    rows = TokenRows(tmp_path / "tokens", 2)
    shorten("tokens-00000.bin", 5)(tmp_path / "tokens")
    with pytest.raises(TokensError, match="cut short while it was read"):
        list(rows)


# Memory


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of memory")
def test_reading_takes_no_memory_that_grows_with_the_files(tmp_path):
    write_tokens([as_text([5, 6])], words_tokenizer(), tmp_path / "tokens")
    tokens = 2**24
    change_about(tokens=tokens, shard_tokens=tokens)(tmp_path / "tokens")
    with (tmp_path / "tokens" / "tokens-00000.bin").open("r+b") as file:
        file.truncate(2 * tokens)
    rows = TokenRows(tmp_path / "tokens", 2**13)
    before = resident_bytes()
    assert sum(row["position_ids"][-1] == 2**13 - 1 for row in rows) == len(rows) - 1
    assert resident_bytes() - before < 2 * tokens / 4


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# Documents in a row

MODELS = {
    "plain": {},
    "a window": WINDOWS,
    "learned positions": {"position_embedding_type": "learned"},
    "sinusoids": {"position_embedding_type": "sinusoidal"},
    **ARCHITECTURES["decoder"],  # among them ALiBi, bounded scores, layers that do not turn
}
REFUSED = [("sdpa", "Gemma"), ("flash_attention_2", "BLOOM")]
LENGTHS = (9, 3, 7, 5, 1, 11, 2, 8)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Documents, the batch of all rows, and where each piece of a document lies in it."""
    folder = tmp_path_factory.mktemp("packed") / "tokens"
    documents = [[token % 90 + 10 for token in row] for row in random_rows(LENGTHS)]
    write_tokens(map(as_text, documents), words_tokenizer(101), folder)
    batch = collate_rows(TokenRows(folder, 18)[:])
    begins = (batch["position_ids"] == 0).nonzero().tolist()
    pieces = []
    for (row, start), following in itertools.pairwise([*begins, [len(batch["input_ids"]), 0]]):
        pieces.append((row, slice(start, following[1] if following[0] == row else None)))
    assert len(batch["input_ids"]) == 3
    assert len(pieces) > len(documents)  # borders of rows cut some
    return batch, pieces


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_document_in_a_row_has_the_logits_that_it_has_alone(name, backend, packed):
    if (backend, name) in REFUSED:
        pytest.skip("tests/model/test_leaves.py looks for the refusal")
    model, (batch, pieces) = DECODER.build(backend, **MODELS[name]), packed
    logits = model(**batch, use_cache=False).logits
    for row, place in pieces:
        alone = model(batch["input_ids"][row : row + 1, place]).logits[0]
        torch.testing.assert_close(logits[row, place], alone, **CLOSE)


@pytest.mark.parametrize("name", ["plain", "a window", "BLOOM"])
def test_packed_rows_have_the_loss_and_the_gradients_of_their_documents(name, packed):
    model, (batch, pieces) = DECODER.build("sdpa", **MODELS[name]).train(), packed
    count = (batch["labels"] != IGNORED).sum()
    whole = model(**batch, num_items_in_batch=count).loss
    whole.backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    total = 0
    for row, place in pieces:
        ids = batch["input_ids"][row : row + 1, place]
        if ids.shape[1] > 1:
            loss = model(ids, labels=ids, num_items_in_batch=count).loss
            loss.backward()
            total += loss.item()
    assert whole.item() == pytest.approx(total, rel=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, **CLOSE)


def test_flash_attention_refuses_several_packed_rows_without_their_boundaries(monkeypatch, packed):
    simulated_flash.install(monkeypatch)
    model = DECODER.build("flash_attention_2")
    batch = {name: packed[0][name] for name in ("input_ids", "position_ids")}
    with pytest.raises(ValueError, match=r"a batch of 3 holds .* or give cu_seq_lens_q"):
        model(**batch)
    model(batch["input_ids"], position_ids=torch.arange(18).repeat(3, 1))  # nothing is packed


# Streamed documents


def stream_of(documents, length=7):
    texts = Dataset.from_dict({"text": [as_text(document) for document in documents]})
    stream = texts.to_iterable_dataset(num_shards=3)
    return StreamedRows(stream, words_tokenizer(), length)


def test_a_stream_has_the_rows_of_prepared_tokens_in_every_pass(tmp_path):
    documents = [*random_documents(random.Random(0), 20), [], [7] * 50]
    write_tokens(map(as_text, documents), words_tokenizer(), tmp_path / "tokens")
    stream, expected = stream_of(documents), as_lists(TokenRows(tmp_path / "tokens", 7))
    assert as_lists(stream) == expected
    assert as_lists(stream) == expected


@pytest.mark.parametrize("seen", [1, 2, 5, 9])
def test_a_stream_goes_on_behind_the_row_at_which_its_state_was_taken(seen):
    documents = [*random_documents(random.Random(0), 20), [7] * 50]
    stream, expected = stream_of(documents), as_lists(stream_of(documents))
    first = list(itertools.islice(stream, seen))
    state = json.loads(json.dumps(stream.state_dict()))
    again = stream_of(documents)
    again.load_state_dict(state)
    assert as_lists([*first, *again]) == expected
    again.documents.set_epoch(1)
    assert as_lists(again) == expected


def test_a_stream_without_the_column_says_which_there_are():
    stream = StreamedRows([{"body": "w5", "title": "w6"}], words_tokenizer(), 7)
    with pytest.raises(TokensError, match="no text in text: choose a column among body, title"):
        next(iter(stream))


# The program


@pytest.fixture
def program(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return Run(monkeypatch, capsys)


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))


def test_the_program_prepares_files_and_lines(program, tmp_path):
    write_lines(tmp_path / "lines.jsonl", [f"line {number} of some" for number in range(9)])
    (tmp_path / "book.txt").write_text("a whole book\nof two lines")
    flags = "--vocab_size 270 --validation 3 --column body --output parts/tokens"
    told = program.works("prepare_tokens", "--text book.txt lines.jsonl", flags)
    assert "7 documents to train on" in told
    assert "3 documents to evaluate on" in told
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "parts" / "tokens")
    folders = tmp_path / "parts" / "tokens", tmp_path / "parts" / "tokens" / "validation"
    texts = [tokenizer.decode(ids_in(folder)) for folder in folders]
    found = sorted(text for both in texts for text in both.split("<|endoftext|>") if text)
    lines = [f"line {number} of some" for number in range(9)]
    assert found == sorted(["a whole book\nof two lines", *lines])


def test_the_program_prepares_a_data_set_while_it_arrives(program, tmp_path):
    (tmp_path / "many").mkdir()
    write_lines(tmp_path / "many" / "train.jsonl", ["one two", "", "three"] * 5)
    for way in ("", "--streaming"):
        flags = f"--vocab_size 270 --validation 1 --column body --output tokens{way}"
        told = program.works("prepare_tokens", "--dataset many", *way.split(), flags)
        assert "9 documents to train on" in told
    assert ids_in(tmp_path / "tokens") == ids_in(tmp_path / "tokens--streaming")


PREPARING = {
    "a full folder": ("--output full", "full exists and is not empty: choose another"),
    "no data set": ("--streaming", "--streaming reads a data set from the Hub: give --dataset"),
    "one document": ("--text one.txt", "validation is 0.05 of 1 documents, which leaves none"),
    "no column": ("--text lines.jsonl", "lines.jsonl has no column text: choose among its columns"),
    "no file": ("--text none.jsonl", "there is no file none.jsonl: check the path"),
    "no end": ("--tokenizer endless", "endless has no end token: choose another tokenizer"),
}


@pytest.mark.parametrize("case", PREPARING)
def test_the_program_refuses_in_a_sentence(case, program, tmp_path):
    flags, sentence = PREPARING[case]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "one.txt").write_text("a text " * 20)
    write_lines(tmp_path / "lines.jsonl", ["text"])
    tokenizer = words_tokenizer()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path / "endless")
    assert sentence in program.refuses("prepare_tokens", "--vocab_size 270", flags)
    assert not (tmp_path / "tokens").exists()
