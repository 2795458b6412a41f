"""What comes along with the weights: tokenizer, ids, habits of generation and a card."""

import json
import subprocess
import sys

import pytest
from huggingface_hub import ModelCard
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from conversion import export_checkpoint, import_checkpoint
from conversion.command import main
from support.cards import each_prints, one_after_another, programs_of
from support.converting import CASES, assert_refused, edit_config, save_ours, save_theirs
from support.gguf_models import decoder_fields, small_decoder
from support.trained_tokenizers import KNOWN

pytestmark = pytest.mark.usefixtures("warm_python")

WORDS = ["<unk>", "<s>", "</s>", "to", "be", "or", "not"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def build_tokenizer(size=7, **roles):
    """Every word is a token; the first three are special."""
    words = [*WORDS, *(f"word{i}" for i in range(size - len(WORDS)))]
    vocabulary = {word: number for number, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens([AddedToken(word, special=True) for word in WORDS[:3]])
    return PreTrainedTokenizerFast(tokenizer_object=backend, **roles)


@pytest.fixture
def llama(tmp_path):
    """A folder of theirs: 101 rows, begins with 1, ends with 2, knows no padding."""
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", bos_token_id=1, eos_token_id=2, pad_token_id=None)
    habits = {"bos_token_id": 1, "eos_token_id": 2, "temperature": 0.5, "do_sample": True}
    (tmp_path / "theirs/generation_config.json").write_text(json.dumps(habits))
    return tmp_path / "theirs"


def quickly(src, dst, **options):
    return import_checkpoint(src, dst, verify=False, **options)


def read(path):
    return json.loads(path.read_text())


# The tokenizer


@pytest.mark.parametrize("given", ["folder", "file", "object"])
def test_a_tokenizer_that_is_given_is_read_without_trust(given, tmp_path, llama):
    tokenizer = build_tokenizer(bos_token="<s>", eos_token="</s>")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    place = {
        "folder": tmp_path / "tokenizer",
        "file": str(tmp_path / "tokenizer/tokenizer.json"),
        "object": tokenizer,
    }[given]
    quickly(llama, tmp_path / "ours", tokenizer=place)
    read_back = AutoTokenizer.from_pretrained(tmp_path / "ours", trust_remote_code=False)
    assert read_back("to be or not to be").input_ids == [3, 4, 5, 6, 3, 4]
    assert (read_back.bos_token_id, read_back.eos_token_id, read_back.is_fast) == (1, 2, True)
    written = read(tmp_path / "ours/tokenizer_config.json")
    assert written["tokenizer_class"]
    assert str(tmp_path) not in json.dumps(written)


def test_a_tokenizer_of_the_source_makes_way_for_the_one_given(tmp_path, llama):
    build_tokenizer(size=9, eos_token="</s>").save_pretrained(llama)
    (llama / "chat_template.jinja").write_text(TEMPLATE)
    quickly(llama, tmp_path / "ours", tokenizer=build_tokenizer(eos_token="</s>"))
    read_back = AutoTokenizer.from_pretrained(tmp_path / "ours", trust_remote_code=False)
    assert (len(read_back), read_back.chat_template) == (7, None)


def test_export_takes_a_tokenizer_too(tmp_path):
    save_ours(tmp_path / "ours", vocab_size=101)
    arguments = ["export", str(tmp_path / "ours"), str(tmp_path / "llama"), "--to", "llama"]
    build_tokenizer().save_pretrained(tmp_path / "tokenizer")
    assert main([*arguments, "--no-verify", "--tokenizer", str(tmp_path / "tokenizer")]) == 0
    assert len(AutoTokenizer.from_pretrained(tmp_path / "llama", trust_remote_code=False)) == 7


BYTES = {"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}


def test_an_old_tokenizer_that_names_no_class_is_the_same_afterwards(tmp_path):
    """As in GPT-2's own folder: there the type of the model decides, which is another in ours."""
    save_theirs(CASES["gpt2"], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", bos_token_id=3, eos_token_id=3, pad_token_id=None)
    (tmp_path / "theirs/vocab.json").write_text(json.dumps(BYTES))
    (tmp_path / "theirs/merges.txt").write_text("#version: 0.2\na b\n")
    quickly(tmp_path / "theirs", tmp_path / "ours")
    tokenizers = [
        AutoTokenizer.from_pretrained(tmp_path / name, trust_remote_code=False)
        for name in ("theirs", "ours")
    ]
    assert [tokenizer.eos_token_id for tokenizer in tokenizers] == [3, 3]
    assert tokenizers[0]("abab").input_ids == tokenizers[1]("abab").input_ids == [2, 2]


def test_the_chat_template_comes_along(tmp_path, llama):
    tokenizer = build_tokenizer(eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(llama)
    quickly(llama, tmp_path / "ours")
    read_back = AutoTokenizer.from_pretrained(tmp_path / "ours", trust_remote_code=False)
    told = read_back.apply_chat_template([{"role": "user", "content": "to be"}], tokenize=False)
    assert told == "to be"


@pytest.mark.parametrize("trouble", ["absent", "broken", "needs code"])
def test_a_tokenizer_that_cannot_be_read_is_refused(trouble, tmp_path, llama):
    place = tmp_path / "tokenizer"
    if trouble != "absent":
        build_tokenizer().save_pretrained(place)
    if trouble == "broken":
        (place / "tokenizer.json").write_text("{nonsense")
    if trouble == "needs code":
        code = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", None]}}
        (place / "tokenizer_config.json").write_text(json.dumps(code))
        (place / "mine.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")

    def run(src, dst):
        quickly(src, dst, tokenizer=place)

    assert_refused(tmp_path, "no tokenizer could be read from", str(place), run=run)


@pytest.mark.parametrize("is_given", [True, False])
def test_more_tokens_than_rows_are_refused(is_given, tmp_path, llama):
    tokenizer = build_tokenizer(size=102)
    if not is_given:
        tokenizer.save_pretrained(llama)

    def run(src, dst):
        quickly(src, dst, tokenizer=tokenizer if is_given else None)

    assert_refused(tmp_path, "102", "vocab_size is 101", "resize_token_embeddings(102)", run=run)


# Special ids and habits of generation


def test_ids_that_agree_are_not_told(tmp_path, llama):
    done = quickly(llama, tmp_path / "ours", tokenizer=build_tokenizer(eos_token="</s>"))
    assert done.disagreements == ()


def test_each_id_that_does_not_agree_is_told_once_and_left_alone(tmp_path, llama, capsys):
    build_tokenizer(bos_token="</s>", eos_token="not").save_pretrained(llama)
    habits = {"eos_token_id": [2, 5], "pad_token_id": 101}
    (llama / "generation_config.json").write_text(json.dumps(habits))
    assert main(["import", str(llama), str(tmp_path / "ours"), "--no-verify"]) == 0
    told = [x for x in capsys.readouterr().out.splitlines() if x.startswith("does not agree: ")]
    said = [line.removeprefix("does not agree: ") for line in told]
    assert len(said) == 3
    assert said[0].startswith("bos_token_id is 1 in config.json, 2 in the tokenizer: correct")
    assert said[1].startswith("eos_token_id is 2 in config.json, [2, 5] in generation_config.json")
    assert said[2].startswith("pad_token_id is 101 in generation_config.json, but there are 101")
    config = read(tmp_path / "ours/config.json")
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)
    assert read(tmp_path / "ours/generation_config.json") == habits


def test_a_tokenizer_that_was_not_read_is_told(tmp_path, llama):
    code = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", None]}}
    (llama / "tokenizer_config.json").write_text(json.dumps(code))
    done = quickly(llama, tmp_path / "ours")
    assert len(done.disagreements) == 1
    assert "its ids were not compared" in done.disagreements[0]
    assert read(tmp_path / "ours/tokenizer_config.json") == code


def test_only_what_nobody_contradicts_is_filled_in(tmp_path, llama):
    """The tokenizer learns its end from the model; generation learns of padding from it."""
    tokenizer = build_tokenizer(pad_token="<unk>", bos_token="</s>")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (llama / "generation_config.json").write_text("{}")
    before = read(llama / "config.json")
    done = quickly(llama, tmp_path / "ours", tokenizer=tmp_path / "tokenizer")
    read_back = AutoTokenizer.from_pretrained(tmp_path / "ours", trust_remote_code=False)
    assert (read_back.eos_token, read_back.bos_token) == ("</s>", "</s>")
    habits = read(tmp_path / "ours/generation_config.json")
    assert habits == {"pad_token_id": 0, "eos_token_id": 2}  # of bos they say different things
    assert [told.split()[0] for told in done.disagreements] == ["bos_token_id"]
    assert read(tmp_path / "ours/config.json")["pad_token_id"] is before["pad_token_id"] is None


def test_a_word_does_not_become_special_because_of_its_number(tmp_path, llama):
    edit_config(llama, eos_token_id=4)
    quickly(llama, tmp_path / "ours", tokenizer=build_tokenizer())
    read_back = AutoTokenizer.from_pretrained(tmp_path / "ours", trust_remote_code=False)
    assert read_back.eos_token is None


def test_habits_that_an_old_folder_keeps_in_its_configuration_come_along(tmp_path):
    save_theirs(CASES["marian"], tmp_path / "theirs")
    (tmp_path / "theirs/generation_config.json").unlink()
    edit_config(tmp_path / "theirs", num_beams=6, bad_words_ids=[[5]], temperature=0.5)
    quickly(tmp_path / "theirs", tmp_path / "ours")
    habits = GenerationConfig.from_pretrained(tmp_path / "ours")
    assert (habits.num_beams, habits.bad_words_ids) == (6, [[5]])
    assert (habits.decoder_start_token_id, habits.temperature) == (1, 0.5)


# The card


SOURCE_CARD = """\
---
license: mit
language: [de, fr]
datasets: [some/data]
tags: [translation, custom_code]
library_name: transformers
---

# A model

`AutoModel.from_pretrained("x", trust_remote_code=True)`
"""


def test_the_card_says_where_the_model_comes_from_and_its_program_runs(tmp_path, llama):
    (llama / "README.md").write_text(SOURCE_CARD)
    build_tokenizer(eos_token="</s>").save_pretrained(llama)
    done = import_checkpoint(llama, tmp_path / "ours")
    card = ModelCard.load(tmp_path / "ours/README.md")
    assert (card.data.license, card.data.language) == ("mit", ["de", "fr"])
    assert card.data.datasets == ["some/data"]
    assert card.data.tags == ["hf_tformer", "custom_code", "translation"]
    assert "Converted from the llama checkpoint `theirs`" in card.text
    assert f"largest difference of their logits was {done.difference:.1e}" in card.text
    assert "License, languages and data sets" in card.text
    assert str(tmp_path) not in card.content
    assert run_programs(card, tmp_path) == 2


def test_the_card_of_an_export_needs_no_trust(tmp_path):
    save_ours(tmp_path / "mine", "tformer_seq2seq", max_position_embeddings=64)
    (tmp_path / "mine/README.md").write_text(SOURCE_CARD)
    export_checkpoint(tmp_path / "mine", tmp_path / "marian", to="marian", verify=False)
    card = ModelCard.load(tmp_path / "marian/README.md")
    assert "trust_remote_code=True" not in card.content
    assert "custom_code" not in card.data.tags
    assert card.data.license == "mit"
    assert "The logits of the two were not compared" in card.text
    assert run_programs(card, tmp_path) == 1


def run_programs(card, folder):
    """Runs the programs of a card where its folder is seen by its name; how many there were."""
    programs = programs_of(card.text)
    command = [sys.executable, "-c", one_after_another(programs)]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    assert each_prints(programs, run.stdout)
    return len(programs)


ODD_CARDS = {
    "no front matter": "no front matter",
    "no YAML": "---\n[a, b\n---\n",
    "a list": "---\n- a list\n---\n",
    "too deep": "---\na: " + "[" * 5000 + "\n---\n",
    "too large": "---\nlicense: mit\na: " + "x" * 2**20 + "\n---\n",
    "no names": "---\n1: 2\nnull: 3\ntags: 3\n---\n",
    "tags that are no names": "---\ntags: [[1], {a: 1}, null]\n---\n",
    "results that are none": "---\nmodel_name: 3\neval_results: 4\n---\n",
    "arguments": "---\nself: 1\nignore_metadata_errors: 2\nto_yaml: 3\n__class__: 4\n---\n",
}


@pytest.mark.parametrize("text", ODD_CARDS.values(), ids=ODD_CARDS)
def test_a_card_that_says_nothing_invents_no_licence(text, tmp_path, llama):
    (llama / "README.md").write_text(text)
    quickly(llama, tmp_path / "ours")
    card = ModelCard.load(tmp_path / "ours/README.md")
    assert card.data.license is None
    assert "licence, languages" not in card.text


@pytest.mark.parametrize(("form", "agrees"), [("qwen2", False), ("llama", True)])
def test_a_tokenizer_that_transformers_opens_as_another_one_is_told(form, agrees, tmp_path):
    """Beside qwen2 it takes its own pre-tokenizer, whatever tokenizer.json says."""
    tokenizer = KNOWN["language model"][0]()
    fields = decoder_fields(form, len(tokenizer) + 2)
    small_decoder(tokenizer, **fields).save_pretrained(tmp_path / "ours")
    tokenizer.save_pretrained(tmp_path / "ours")
    done = export_checkpoint(tmp_path / "ours", tmp_path / form, form, verify=False)
    opened = AutoTokenizer.from_pretrained(tmp_path / form)
    text = "iPhone12Pro costs 1234"
    assert (opened(text).input_ids == tokenizer(text).input_ids) is agrees
    assert [told.partition(",")[0] for told in done.disagreements] == (
        [] if agrees else ["AutoTokenizer opens this tokenizer as Qwen2Tokenizer"]
    )
