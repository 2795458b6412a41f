"""A folder of transformers that somebody made from another one is compared with it, by name."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file

from conversion import prove
from conversion.proving.answer import DIFFERS
from conversion.proving.command import main
from conversion.proving.opened_model import RunningModel
from support.converting import CASES
from support.parity import randomise
from support.planted_faults import FAULTS, each, of_config
from support.trained_tokenizers import KNOWN

QUICK = ("rotation order", "theta", "no beginning", "order", "end", "no template")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder, tokenizer = tmp_path_factory.mktemp("llama"), KNOWN["llama 3"][0]()
    case = CASES["llama untied"] if "llama untied" in CASES else CASES["llama grouped-query"]
    options = {**case.theirs, "vocab_size": len(tokenizer) + 2, "tie_word_embeddings": False}
    rope = {"rope_type": "default", "rope_theta": 500000.0}
    options |= {"rope_parameters": rope, "bos_token_id": 0, "eos_token_id": 0}
    randomise(case.build_one(case.their_classes, options)).eval().save_pretrained(folder)
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    )
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def other(llama, tmp_path):
    return shutil.copytree(llama, tmp_path / "other")


def wrong(done):
    return [answer for answer in done.answers if answer.verdict == DIFFERS]


def test_a_copy_is_the_same_model(llama, other, capsys):
    assert main([str(llama), str(other)]) == 0
    assert "the same model: 7 answers agree" in capsys.readouterr().out


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.name in QUICK], ids=lambda one: one.name)
def test_a_fault_is_found_and_named(fault, llama, other):
    fault.plant(other)
    found = wrong(prove(llama, other))
    assert any(re.search(fault.asked, one.question) for one in found), found
    assert any(re.search(fault.cause, f"{one.seen} {one.cause}") for one in found), found


def test_rounded_weights_are_no_fault_and_a_changed_bit_of_them_is(llama, other):
    each(".", lambda x: x.to(torch.bfloat16))(other)
    of_config(dtype="bfloat16")(other)
    assert prove(llama, other).is_same
    each("o_proj", lambda x: x * 1.1)(other)
    assert "weights" in [one.question for one in wrong(prove(llama, other))]


def test_numbers_that_are_not_finite_are_named(llama, other):
    each("o_proj", lambda x: x / 0)(other)
    assert "not finite" in " ".join(one.cause for one in wrong(prove(llama, other)))


@pytest.mark.parametrize("factor", [1, 1.5])
def test_a_padding_token_that_a_runtime_leaves_out_is_not_compared(
    factor, llama, other, monkeypatch
):
    """As CTranslate2 does where its row is the last one."""
    last = load_file(llama / "model.safetensors")["model.embed_tokens.weight"].shape[0] - 1
    copy = shutil.copytree(llama, other.with_name("padded"))
    for folder in (copy, other):
        of_config(pad_token_id=last)(folder)
    each("o_proj", lambda x: x * factor)(other)
    whole = RunningModel.logits
    monkeypatch.setattr(RunningModel, "logits", lambda self, batch: whole(self, batch)[..., :-1])
    found = [one.question for one in wrong(prove(copy, other))]
    assert found == ([] if factor == 1 else ["weights", "logits", "greedy text"])


def test_settings_of_training_and_of_others_are_no_fault(llama, other):
    of_config(attention_dropout=0.1, somebodys_own=True)(other)
    assert prove(llama, other).is_same


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("generation_config.json", "[]"),
        ("generation_config.json", '{"max_new_tokens": -5}'),
        ("config.json", '{"model_type": "llama", "architectures": ["PreTrainedModel"]}'),
        ("config.json", '{"model_type": "vit", "architectures": ["ViTModel"]}'),
        ("tokenizer.json", "{"),
    ],
)
def test_a_damaged_or_unfit_folder_is_one_sentence(name, text, llama, other, capsys):
    (other / name).write_text(text)
    for words in ([str(llama), str(other)], [str(other), str(llama)]):
        assert main(words) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_template_that_fails_is_a_difference(llama, other):
    (other / "chat_template.jinja").write_text("{{ 1 // 0 }}")
    assert [one.question for one in wrong(prove(llama, other))] == ["chat template"]


def test_what_cannot_be_judged_is_one_sentence(llama, tmp_path, capsys):
    (tmp_path / "unknown").mkdir()
    config = {"model_type": "llama", "architectures": ["Mine"]}
    (tmp_path / "unknown/config.json").write_text(json.dumps(config))
    for words in (
        [str(tmp_path / "unknown"), str(llama)],
        [str(llama), str(tmp_path / "unknown")],
        [str(tmp_path / "nothing"), str(llama)],
        [str(llama), str(tmp_path / "nothing.gguf")],
        [str(llama), str(tmp_path)],
    ):
        assert main(words) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert len(told.err.splitlines()) == 1
