"""Seeing attention: the weights are those that the model works with, under their tokens."""

import builtins
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hf_tformer import attention_maps
from hf_tformer.__main__ import main
from hf_tformer.view.attention import read_tokens
from support.attention_maps import IDS, TARGET, folder_of, inputs_of
from support.families import DECODER, DECODERS, ENCODER, MIXTURE, SEQ2SEQ
from support.training import tokenizer

pytestmark = pytest.mark.usefixtures("warm_python")


def test_the_weights_are_the_same_on_every_backend_and_the_backend_stays(family, backend):
    expected = attention_maps(family.build("eager"), inputs_of(family))
    model = family.build(backend).train()
    maps = attention_maps(model, inputs_of(family))
    assert model.config._attn_implementation == backend
    assert model.training
    assert list(maps) == list(expected)
    for name, one in maps.items():
        torch.testing.assert_close(one.weights, expected[name].weights)


def test_a_forward_pass_that_fails_leaves_the_backend_as_it_was():
    model = DECODER.build("sdpa")
    with pytest.raises(IndexError):
        attention_maps(model, {"input_ids": torch.tensor([[5, 1000]])})
    assert model.config._attn_implementation == "sdpa"


def test_frozen_layers_stay_frozen():
    model = DECODER.build().train()
    model.model.layers[0].eval()
    attention_maps(model, {"input_ids": IDS})
    assert (model.training, model.model.layers[0].training) == (True, False)


def test_rows_sum_to_one_and_a_decoder_never_looks_ahead(family):
    maps = attention_maps(family.build(), inputs_of(family))
    for one in maps.values():
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(one.weights.shape[:-1]))
        assert one.weights.shape[1:] == (6, len(one.rows), len(one.columns))
    if family is not ENCODER:
        assert not maps["decoder"].weights.triu(1).any()
    if family not in DECODERS:
        assert maps["encoder"].weights.triu(1).any()
    if family is SEQ2SEQ:
        assert maps["cross"].weights.shape == (2, 6, 5, 6)
        assert maps["encoder"].weights.shape[0] == 1  # layers


def test_the_weights_times_the_values_are_what_attention_returns():
    """A picture of anything else would be a picture of nothing."""
    model, seen = DECODER.build(), {}
    attention = model.model.layers[1].self_attn
    attention.v_proj.register_forward_hook(lambda *args: seen.update(value=args[2]))
    attention.o_proj.register_forward_pre_hook(lambda *args: seen.update(joined=args[1][0]))
    weights = attention_maps(model, {"input_ids": IDS})["decoder"].weights[1]
    value = seen["value"].view(6, 3, 10).repeat_interleave(2, dim=1)  # [token, head, head_dim]
    output = torch.einsum("hqk,khd->qhd", weights, value).flatten(1)
    torch.testing.assert_close(output, seen["joined"][0])


def test_tokens_are_labelled_with_what_they_read_as():
    maps = attention_maps(SEQ2SEQ.build(), inputs_of(SEQ2SEQ), tokenizer())
    assert maps["cross"].rows == [str(i) for i in TARGET[0].tolist()]
    assert maps["cross"].columns == [str(i) for i in IDS[0].tolist()]
    without = attention_maps(SEQ2SEQ.build(), inputs_of(SEQ2SEQ))
    assert without["cross"].columns == maps["cross"].columns


def test_a_part_of_a_character_is_labelled_by_its_bytes():
    from hf_tformer.view.attention import as_bytes

    assert as_bytes("ðŁĺ") == "<F0><9F><98>"  # as byte-level vocabularies write bytes
    assert as_bytes("Ġð") == " <F0>"
    assert as_bytes("<0xF0>") == "<F0>"
    assert as_bytes("▁词") == "▁词"


def test_what_the_model_gave_for_each_token_it_wrote_is_a_softmax_over_all():
    model = DECODER.build(vocab_size=97)
    ids = torch.tensor([[5, 6, 7]])
    written = model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    maps = attention_maps(model, {"input_ids": written}, written_from=3)
    with torch.no_grad():
        logits = model(written).logits[0]
    assert len(maps.written_by) == 4
    for number, one in enumerate(maps.written_by):
        assert one.tokens[0] == str(written[0, 3 + number].item())
        all_others = sum(count for _, count in one.others)
        assert all_others == 97 - 10
        total = sum(math.exp(x) for x in one.logits)
        total += sum(count * math.exp(x) for x, count in one.others)
        expected = logits[2 + number].softmax(-1).max().item()
        assert math.exp(one.logits[0]) / total == pytest.approx(expected, rel=1e-4)
    assert attention_maps(model, {"input_ids": written}).written_by == ()


def test_a_number_beyond_the_vocabulary_is_its_own_label():
    """Models often have more embeddings than their tokenizer has tokens."""
    assert read_tokens([5, 90_000, 6], tokenizer()) == ["5", "90000", "6"]


def test_the_text_holds_every_weight_of_the_chosen_heads():
    one = attention_maps(DECODER.build(), {"input_ids": IDS})["decoder"]
    tables = one.as_text(layers=[1], heads=[0, 5]).split("\n\n")
    assert [table.splitlines()[0] for table in tables] == [
        "decoder attention, layer 1, head 0",
        "decoder attention, layer 1, head 5",
    ]
    rows = [line.split()[1:] for line in tables[1].splitlines()[2:]]
    shown = torch.tensor([[float(number) for number in row] for row in rows])
    torch.testing.assert_close(shown, one.weights[1, 5], atol=0.00501, rtol=0)
    assert len(one.as_text().split("\n\n")) == 12  # two layers of six heads


def test_the_picture_shows_the_weights_of_the_chosen_heads_under_their_tokens(tmp_path):
    one = attention_maps(SEQ2SEQ.build(), inputs_of(SEQ2SEQ), tokenizer())["cross"]
    figure = one.draw(layers=[0, 1], heads=[3])
    images = [axes for axes in figure.axes if axes.get_images()]
    assert [axes.get_title() for axes in images] == ["layer 0, head 3", "layer 1, head 3"]
    for layer, axes in enumerate(images):
        shown = torch.from_numpy(axes.get_images()[0].get_array().data.copy())
        torch.testing.assert_close(shown, one.weights[layer, 3])
        assert [label.get_text() for label in axes.get_yticklabels()] == one.rows
    # the heads of a column share the labels under the lowest
    assert [label.get_text() for label in images[-1].get_xticklabels()] == one.columns
    figure.savefig(tmp_path / "heads.png")
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("choice", [{"layers": [2]}, {"heads": [0, 6]}, {"heads": [-1]}])
def test_a_layer_or_head_that_is_not_there_is_refused_by_number(choice):
    one = attention_maps(DECODER.build(), {"input_ids": IDS})["decoder"]
    for show in (one.as_text, one.draw):
        with pytest.raises(
            ValueError, match=r"there is no (layer 2|head 6|head -1) in the decoder"
        ):
            show(**choice)


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ValueError, match="give decoder_input_ids"):
        attention_maps(SEQ2SEQ.build(), {"input_ids": IDS})
    with pytest.raises(ValueError, match="has 2 sequences"):
        attention_maps(DECODER.build(), {"input_ids": IDS.repeat(2, 1)})


def test_a_picture_without_matplotlib_says_what_to_install(monkeypatch):
    one = attention_maps(DECODER.build(), {"input_ids": IDS})["decoder"]
    importing = builtins.__import__

    def without_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return importing(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=r"pip install 'hf-tformer\[viz\]'"):
        one.draw()
    assert one.as_text()


# The command


@pytest.fixture
def folder(family, tmp_path, monkeypatch):
    return folder_of(family, tmp_path, monkeypatch)


def test_the_command_prints_the_weights_under_the_words_of_the_text(folder, family, capsys):
    assert main(["view", folder, "5", "6", "7 8", "--layers", "1", "--heads", "2", "4"]) == 0
    one, other = capsys.readouterr().out.split("\n\n")
    kinds = {SEQ2SEQ.name: "cross", MIXTURE.name: "decoder"}
    kind = kinds.get(family.name, family.name)
    assert one.splitlines()[0] == f"{kind} attention, layer 1, head 2"
    assert one.splitlines()[1].split() == ["5", "6", "7", "8"]
    assert other.startswith(f"{kind} attention, layer 1, head 4")


def test_the_command_shows_an_encoder_decoder_writing_the_target(tmp_path, monkeypatch, capsys):
    folder_of(SEQ2SEQ, tmp_path, monkeypatch)
    flags = ["--target", "9 7", "--kind", "decoder", "--layers", "0", "--heads", "0"]
    assert main(["view", "model", "5 6", *flags]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["1", "9"]
    assert main(["view", "model", "5 6", "--kind", "encoder"]) == 0
    assert capsys.readouterr().out.count("encoder attention, layer 0") == 6


def test_the_command_draws_into_a_file(folder, capsys):
    assert main(["view", folder, "5 6", "--heads", "0", "--output", "heads.png"]) == 0
    assert capsys.readouterr().out == "heads.png\n"
    assert Path("heads.png").read_bytes().startswith(b"\x89PNG")


REFUSED = {
    "model 5 --layers 2": "there is no layer 2 in the decoder attention: it has 2",
    "model 5 --heads 6": "there is no head 6",
    "model 5 --kind cross": "--kind cross: this model has decoder",
    "./gone 5": "there is no folder ./gone",
    "model 5 --output no/where.png": "there is no folder no",
    "model 5 --output a.nonsense": "is neither a page nor a picture: end its name with .html",
    "gone 5": "there is no folder gone, and the Hub cannot be reached",
    "gone 5 -o x.txt": "--output x.txt is neither a page nor a picture",  # before the model
    "model 5 --output .": "--output . is a folder",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_the_command_cannot_show_is_one_sentence(line, tmp_path, monkeypatch, capsys):
    folder_of(DECODER, tmp_path, monkeypatch)
    assert main(["view", *line.split()]) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith("error: ")
    assert REFUSED[line] in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


CLEARS = "\x1b[2J\x1b[31m\x9b1A\u202e"
SPELLINGS = {
    "the name of a quantiser": {"quantization_config": {"quant_method": CLEARS}},
    "no map": {"model_type": CLEARS, "auto_map": None},
    "code beside it": {"model_type": CLEARS, "trusted": True},
}


@pytest.mark.parametrize("how", SPELLINGS)
def test_nothing_that_a_folder_says_moves_the_cursor(how, tmp_path, monkeypatch):
    """In a process of its own: libraries print where they first found the screen."""
    folder_of(DECODER, tmp_path, monkeypatch)
    changed = dict(SPELLINGS[how])
    flags = ["--trust-remote-code"] if changed.pop("trusted", False) else []
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    command = [sys.executable, "-m", "hf_tformer", "view", "model", "5 6", *flags]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    printed = (run.stdout + run.stderr).replace("\n", "").replace("\r", "")
    assert not {"\x1b", "\x9b", "\u202e"} & set(printed)
    assert run.returncode == 0 or run.stderr.splitlines()[-1].startswith("error: "), run.stderr


def test_an_empty_text_is_refused(tmp_path, monkeypatch, capsys):
    folder_of(DECODER, tmp_path, monkeypatch)
    assert main(["view", "model", ""]) == 1
    assert "error: the text is empty" in capsys.readouterr().err


def test_an_empty_target_is_refused(tmp_path, monkeypatch, capsys):
    folder_of(SEQ2SEQ, tmp_path, monkeypatch)
    assert main(["view", "model", "5", "--target", ""]) == 1
    assert "error: --target is empty" in capsys.readouterr().err
