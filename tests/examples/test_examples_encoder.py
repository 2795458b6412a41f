"""The programs of examples/ that train an encoder and fine-tune it: at toy size, to their end, and
stopped by one sentence where something is wrong."""

import json
import sys

import pytest
import torch
from dates import FIRST, FORMATS, LANGUAGES, tag_date, tagged_dates, write_date
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

from support.programs import Run, write_text

TINY = "--hidden_size 32 --num_hidden_layers 3 --num_attention_heads 4 --warmup_steps 0"
TRAIN = f"--vocab_size 300 --block_size 16 --batch_size 4 {TINY} --save_steps 2"
TUNE = "--batch_size 4 --max_steps 2 --save_steps 2 --warmup_steps 0"


@pytest.fixture
def program(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return Run(monkeypatch, capsys)


@pytest.fixture
def encoder(program, tmp_path):
    write_text(tmp_path / "words.txt")
    out = program.works("train_encoder", f"--text words.txt --output enc --max_steps 2 {TRAIN}")
    assert "perplexity of hidden tokens" in out
    return "enc"


def test_an_encoder_is_trained_resumed_and_opens_with_the_auto_classes(program, encoder, tmp_path):
    model = AutoModelForMaskedLM.from_pretrained(encoder)
    tokenizer = AutoTokenizer.from_pretrained(encoder, trust_remote_code=False)
    assert type(model).__name__ == "TformerEncoderForMaskedLM"
    assert model.config.mask_token_id == tokenizer.mask_token_id == 1
    program.works("train_encoder", f"--text words.txt --output enc --max_steps 4 --resume {TRAIN}")
    (tmp_path / "straight").mkdir()
    flags = f"--text words.txt --output straight/enc --max_steps 4 {TRAIN}"
    program.works("train_encoder", flags)
    resumed, straight = (
        AutoModelForMaskedLM.from_pretrained(folder).state_dict()
        for folder in ("enc", "straight/enc")
    )
    assert resumed.keys() == straight.keys()
    assert any(not torch.equal(resumed[name], start) for name, start in model.state_dict().items())


def test_the_encoder_learns_classes_of_texts_from_a_table(program, encoder, tmp_path):
    rows = [f"the cat sat {n}\tcat\nthe dog ran {n}\tdog" for n in range(20)]
    (tmp_path / "animals.tsv").write_text("\n".join(rows), encoding="utf-8")
    out = program.works("finetune_encoder", encoder, f"--data animals.tsv --output animals {TUNE}")
    assert "2 classes, 36 examples to train on, 4 to evaluate on" in out
    found = pipeline("text-classification", "animals")("the cat sat")
    assert found[0]["label"] in ("cat", "dog")


def test_the_encoder_learns_tags_of_words_from_a_file(program, encoder, tmp_path):
    row = {"words": ["the", "cat", "sat"], "tags": ["other", "animal", "other"]}
    (tmp_path / "words.jsonl").write_text("\n".join([json.dumps(row)] * 20), encoding="utf-8")
    flags = f"--tags --data words.jsonl --output tags {TUNE}"
    assert "2 classes" in program.works("finetune_encoder", encoder, flags)
    labels = pipeline("token-classification", "tags").model.config.label2id
    assert labels == {"animal": 0, "other": 1}


@pytest.mark.parametrize("flags", ["", "--tags"])
def test_without_a_model_a_small_one_learns_from_dates(program, flags):
    out = program.works("finetune_encoder", f"--number_of_dates 40 --output dates {flags} {TUNE}")
    assert "accuracy on examples that it has not seen" in out


WRONG = {
    "a class alone": ("--data one.tsv", "one class alone"),
    "no file": ("--data none.tsv", "there is no file none.tsv"),
    "no lists": ("--tags --data one.jsonl", "line 1 of one.jsonl"),
    "no model": ("--data two.tsv --output x ./nowhere", "there is no folder ./nowhere"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_left(program, tmp_path, case):
    flags, words = WRONG[case]
    (tmp_path / "one.tsv").write_text("a\tb\nc\tb\n", encoding="utf-8")
    (tmp_path / "two.tsv").write_text("a\tb\nc\td\n", encoding="utf-8")
    (tmp_path / "one.jsonl").write_text('{"words": ["a"], "tags": []}\n', encoding="utf-8")
    assert words in program.refuses("finetune_encoder", f"{flags} --output out")
    assert not (tmp_path / "out").exists()


def test_without_sentence_transformers_the_program_of_vectors_says_what_to_install(
    program, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    told = program.refuses("train_embeddings", "--output vectors")
    assert "pip install 'hf-tformer[sentences]'" in told
    assert not (tmp_path / "vectors").exists()


def test_sentence_vectors_are_trained_and_open_as_a_sentence_model(program):
    sentences = pytest.importorskip("sentence_transformers")
    flags = "--number_of_dates 64 --max_steps 2 --batch_size 8 --output vectors"
    assert "nearest is the partner" in program.works("train_embeddings", flags)
    model = sentences.SentenceTransformer("vectors", trust_remote_code=True)
    assert model.encode(["5 mars 2023", "2023年3月5日"]).shape == (2, 128)


def test_the_parts_of_a_date_are_the_date():
    for language in LANGUAGES:
        for form in FORMATS:
            tagged = tag_date(FIRST, language, form)
            assert "".join(tagged.words) == write_date(FIRST, language, form)
            assert {"year", "month", "day"} <= set(tagged.tags)
    assert len(tagged_dates(5)) == 5
