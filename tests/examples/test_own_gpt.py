"""The GPT in one file: our logits, our folder, and what it learns in a minute."""

import ast

import pytest
import torch
from own_gpt import GPT, Sizes, generate, save
from transformers import AutoModelForCausalLM

from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM
from support.parity import randomise
from support.programs import EXAMPLES, Run, write_text
from support.training import tokenizer

FILE = EXAMPLES / "own_gpt.py"
SIZES = Sizes(vocab_size=101, hidden_size=48, intermediate_size=80, num_hidden_layers=3)


@pytest.fixture
def gpt():
    return randomise(GPT(SIZES)).eval()


@pytest.fixture
def ids():
    return torch.randint(101, (2, 19), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def program(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return Run(monkeypatch, capsys)


@pytest.mark.parametrize("groups", [1, 2, 4])
@torch.no_grad()
def test_its_logits_are_ours(groups, ids):
    sizes = Sizes(**{**vars(SIZES), "num_key_value_heads": groups})
    gpt = randomise(GPT(sizes))
    ours = TformerDecoderForCausalLM(TformerDecoderConfig(**vars(sizes))).eval()
    ours.model.load_state_dict(gpt.state_dict())
    torch.testing.assert_close(gpt(ids)[0], ours(ids).logits, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_with_its_cache_it_computes_the_same(gpt, ids):
    whole, _ = gpt(ids)
    caches, parts = None, []
    for part in ids.split((7, 1, 11), dim=1):
        logits, caches = gpt(part, caches)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-4, atol=1e-5)


def test_what_it_saves_is_opened_by_anyone_and_generates_the_same(gpt, ids, tmp_path):
    save(gpt, SIZES, tokenizer(), tmp_path)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True)
    with torch.no_grad():
        torch.testing.assert_close(opened(ids).logits, gpt(ids)[0], rtol=1e-4, atol=1e-5)
    written = opened.generate(ids[:1], max_new_tokens=9, do_sample=False, eos_token_id=None)
    assert written.tolist() == generate(gpt, ids[:1], 9).tolist()


def test_it_is_one_file_of_150_lines_whose_model_is_its_own():
    text = FILE.read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 150
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    used = {node.id for each in classes for node in ast.walk(each) if isinstance(node, ast.Name)}
    assert {each.name for each in classes} >= {"Attention", "MLP", "Layer", "GPT"}
    assert not [name for name in used if name.startswith("Tformer")]


def test_the_program_ends_with_one_sentence_where_it_cannot_go_on(program, tmp_path):
    (tmp_path / "short.txt").write_text("Hello")
    assert "the text has" in program.refuses("own_gpt", "--output gpt --text short.txt")
    assert not (tmp_path / "gpt").exists()
    write_text(tmp_path / "words.txt")
    flags = "--output gpt --text words.txt --vocab_size 300 --steps 2"
    assert "step 2: loss" in program.works("own_gpt", flags)
    assert (tmp_path / "gpt" / "model.safetensors").exists()
    assert "choose another --output" in program.refuses("own_gpt", flags)


@pytest.mark.slow
def test_in_a_minute_it_learns_the_words_of_a_manual(program):
    printed = program.works("own_gpt", "--output gpt")
    losses = [float(line.split()[-1]) for line in printed.splitlines() if "loss" in line]
    assert losses[0] > 6.5
    assert losses[-1] < 4.3
