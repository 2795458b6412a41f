"""The attention page holds what the model computed; nothing in it can leave it or run in it."""

import base64
import hashlib
import html
import json
import re
import zlib
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModel,
)

from hf_tformer import attention_maps
from hf_tformer.__main__ import main
from hf_tformer.view import packing, page
from hf_tformer.view.measures import measure_heads
from support.attention_maps import folder_of, inputs_of
from support.attention_pages import (
    HEADS,
    HOSTILE,
    IDS,
    OTHERS,
    SIZES,
    build,
    hostile_maps,
    maps_of,
    target_of,
)
from support.families import DECODER, SEQ2SEQ

ROOM = Path(page.__file__).parent / "page"


def elements(text):
    """The data of a page: id → its text."""
    found = re.findall(r'<script type="text/plain" id="([^"]+)">(.*?)</script>', text, re.S)
    return dict(found)


def read(path):
    held = elements(Path(path).read_text(encoding="utf-8"))
    return json.loads(held.pop("payload")), held


def unpacked(line, dtype):
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(line))), dtype=dtype)


def weights_in(payload, held, one, shape):
    """What the page shows: [layers, heads, rows, columns]."""
    layers = []
    for layer in range(one["layers"]):
        lines = held[f"weights-{one['chunks']}-{layer}"].split("\n")
        if payload["rounding"]["bits"] == 16:
            heads = [unpacked(line, torch.uint16).double() / 65535 for line in lines]
        else:
            heads = [(unpacked(line, torch.uint8).double() / 255) ** 2 for line in lines]
        layers.append(torch.stack(heads))
    return torch.stack(layers).view(shape)


ROUNDINGS = (packing.LINEAR, packing.ROOT, packing.COARSE)


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=lambda rounding: rounding.name)
def test_a_page_holds_every_weight_as_exactly_as_it_says(rounding, tmp_path, monkeypatch, family):
    monkeypatch.setattr(page, "choose_rounding", lambda count: rounding)
    maps = attention_maps(family.build(), inputs_of(family))
    maps.save_html(tmp_path / "page.html")
    payload, held = read(tmp_path / "page.html")
    (entry,) = payload["entries"]
    assert [one["kind"] for one in entry["maps"]] == list(maps)
    for one in entry["maps"]:
        weights = maps[one["kind"]].weights
        shown = weights_in(payload, held, one, weights.shape)
        assert (shown - weights).abs().max() <= payload["rounding"]["error"] + 1e-7
        assert entry["tokens"][one["rows"]] == maps[one["kind"]].rows
        assert entry["tokens"][one["columns"]] == maps[one["kind"]].columns


@pytest.mark.parametrize("name", OTHERS)
def test_models_of_transformers_are_shown_with_what_they_return(name, tmp_path):
    model = build(name)
    before = model.config._attn_implementation
    maps = maps_of(model)
    assert model.config._attn_implementation == before
    model.set_attn_implementation("eager")
    output = model(input_ids=IDS, **target_of(model), output_attentions=True, use_cache=False)
    fields = {
        "encoder": "encoder_attentions",
        "decoder": "decoder_attentions",
        "cross": "cross_attentions",
    }
    if not model.config.is_encoder_decoder:
        fields = {"encoder" if name == "bert" else "decoder": "attentions"}
    assert set(maps) == set(fields)
    for kind, field in fields.items():
        expected = torch.cat(output[field]).detach()
        torch.testing.assert_close(maps[kind].weights, expected)
        for weights, scores in zip(expected, maps[kind].scores, strict=True):
            assert (scores is not None) == OTHERS[name][2]
            if scores is not None:  # what the page computes again
                torch.testing.assert_close(scores.weights(), weights, rtol=1e-3, atol=1e-5)
    maps.save_html(tmp_path / "page.html")
    payload, held = read(tmp_path / "page.html")
    assert any(key.startswith("scores") for key in held) == OTHERS[name][2]
    kinds = [one["kind"] for one in payload["entries"][0]["maps"]]
    assert kinds == list(maps)


DATES = Path(__file__).parents[2] / "docs" / "pictures" / "attention-of-dates.html"


def test_the_page_of_the_book_is_drawn_by_the_script_of_today():
    """`make demo` trains its model; `tformer view … --generate` writes it anew."""
    shown = DATES.read_text(encoding="utf-8")
    for name in ("style.css", "page.js"):
        assert (ROOM / name).read_text(encoding="utf-8") in shown, name


def test_the_page_of_the_book_shows_from_which_letters_a_year_is_written():
    payload, held = read(DATES)
    (entry,) = payload["entries"]
    (cross,) = (one for one in entry["maps"] if one["kind"] == "cross")
    rows, columns = entry["tokens"][cross["rows"]], entry["tokens"][cross["columns"]]
    year = rows[1:5]  # each digit is written by the row before its own
    begin = next(i for i in range(len(columns)) if columns[i : i + 4] == year)
    shape = (cross["layers"], -1, len(rows), len(columns))
    looked_at = weights_in(payload, held, cross, shape)[:, :, :4].argmax(dim=-1)
    assert (looked_at == torch.arange(begin, begin + 4)).all(dim=-1).any(), looked_at


def test_what_rotations_turned_can_be_turned_back():
    """The page does so, to show q and k before their places were known."""
    model, seen = DECODER.build("eager"), {}
    attention = model.model.layers[0].self_attn
    project = attention.project_query
    attention.project_query = lambda states: seen.setdefault("query", project(states))
    scores = attention_maps(model, {"input_ids": IDS})["decoder"].scores[0]
    half = scores.cos.shape[-1] // 2
    turned, (cos, sin) = scores.query, (scores.cos[:, :half], scores.sin[:, :half])
    x, y = turned[..., :half], turned[..., half : 2 * half]
    norm = cos**2 + sin**2
    before = torch.cat(((x * cos + y * sin) / norm, (y * cos - x * sin) / norm), dim=-1)
    torch.testing.assert_close(before, seen["query"][0][..., : 2 * half].detach())


def test_what_is_not_turned_so_is_not_turned_back():
    from transformers import (
        DeepseekV3Config,
        DeepseekV3ForCausalLM,
        SmolLM3Config,
        SmolLM3ForCausalLM,
    )

    some = SmolLM3Config(vocab_size=50, **SIZES, **HEADS, pad_token_id=0, no_rope_layers=[1, 0])
    turned = [s.cos is not None for s in maps_of(SmolLM3ForCausalLM(some).eval())["decoder"].scores]
    assert turned == [True, False]
    ends = DeepseekV3Config(
        vocab_size=50, **SIZES, **HEADS, num_key_value_heads=4, first_k_dense_replace=2,
        q_lora_rank=None, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8,
    )  # fmt: skip
    scores = maps_of(DeepseekV3ForCausalLM(ends).eval())["decoder"].scores
    assert [s.cos for s in scores] == [None, None]


def test_the_registry_is_as_it_was_and_no_hook_stays():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = DECODER.build()
    maps_of(model)
    assert "eager" not in ALL_ATTENTION_FUNCTIONS
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_model_with_an_attention_function_of_its_own_is_shown_without_scores():
    """Nobody knows what it computes; its weights are what it returns."""
    model = DECODER.build()
    type_of = type(model.model.layers[0].self_attn)
    stranger = type("Stranger", (type_of,), {"__module__": "nowhere"})
    for layer in model.model.layers:
        layer.self_attn.__class__ = stranger
    expected = maps_of(DECODER.build())["decoder"]
    monkey = maps_of(model)["decoder"]
    torch.testing.assert_close(monkey.weights, expected.weights)


def test_a_model_without_weights_is_refused():
    from transformers import MambaConfig, MambaForCausalLM

    model = MambaForCausalLM(MambaConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1))
    with pytest.raises(ValueError, match="MambaForCausalLM returns no attention weights"):
        attention_maps(model, {"input_ids": IDS})


@pytest.mark.parametrize("name", ["llama", "gemma2", "bart"])
def test_padding_changes_neither_the_kind_nor_what_is_known(name):
    """Rows of padding may look anywhere, ahead too."""
    model = build(name)
    inputs = {"input_ids": IDS, **target_of(model)}
    for mask in ([0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]):
        maps = attention_maps(model, inputs | {"attention_mask": torch.tensor([mask])})
        assert list(maps) == list(maps_of(model))
        assert all(scores for one in maps.values() for scores in one.scores)


def test_a_mask_of_pairs_is_taken_as_it_is():
    hidden = torch.full((7, 7), torch.finfo(torch.float32).min).triu(1)
    inputs = {"input_ids": IDS, "attention_mask": hidden[None, None]}
    assert list(attention_maps(build("llama"), inputs)) == ["decoder"]


def test_one_token_is_enough_to_tell_an_encoder_from_a_decoder():
    for name, kind in (("bert", "encoder"), ("llama", "decoder"), ("gpt2", "decoder")):
        assert list(attention_maps(build(name), {"input_ids": IDS[:, :1]})) == [kind]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["llama", "gpt2", "t5"])
def test_what_weights_of_few_digits_come_from_is_known(name, dtype):
    for one in maps_of(build(name).to(dtype)).values():
        assert all(one.scores)


@pytest.fixture
def llama_of_nan(monkeypatch):
    """It answers NaN for all that the third token attends to."""
    model = build("llama")
    answer = model.forward

    def forward(*args, **kwargs):
        output = answer(*args, **kwargs)
        output["attentions"][0][..., 2, :] = float("nan")
        return output

    monkeypatch.setattr(model, "forward", forward)
    return model


def test_a_row_of_padding_is_zero(llama_of_nan, tmp_path):
    """It attends to nothing, so that some models divide by zero."""
    mask = torch.ones_like(IDS)
    mask[0, 2] = 0
    maps = attention_maps(llama_of_nan, {"input_ids": IDS, "attention_mask": mask})
    assert not maps["decoder"].weights[0, :, 2].any()
    maps.save_html(tmp_path / "page.html")
    assert "NaN" not in elements((tmp_path / "page.html").read_text())["payload"]


@pytest.mark.parametrize("mask", [None, torch.ones_like(IDS)], ids=["no mask", "no padding"])
def test_weights_that_are_no_numbers_are_shown_as_such(mask, llama_of_nan, tmp_path):
    maps = attention_maps(llama_of_nan, {"input_ids": IDS, "attention_mask": mask})
    table = maps["decoder"].as_text([0], [0]).splitlines()
    assert table[4].split()[1:] == ["NaN"] * IDS.shape[1]
    assert "NaN" not in maps["decoder"].as_text([1])
    assert len({len(line) for line in table[2:]}) == 1  # the columns stay below each other
    with pytest.raises(ValueError, match="some weights are NaN, which a page cannot show"):
        maps.save_html(tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_what_is_no_table_of_tokens_is_refused():
    from transformers import LongformerConfig, LongformerModel, SqueezeBertConfig, SqueezeBertModel

    windows = LongformerConfig(vocab_size=50, **SIZES, **HEADS, attention_window=4)
    with pytest.raises(ValueError, match=r"LongformerModel .* another shape .* \[4, 7, 5\]"):
        maps_of(LongformerModel(windows).eval())
    scores = SqueezeBertConfig(vocab_size=50, **SIZES, **HEADS, embedding_size=32)
    with pytest.raises(ValueError, match="SqueezeBertModel returns scores before softmax"):
        maps_of(SqueezeBertModel(scores).eval())
    with pytest.raises(ValueError, match="give input_ids"):
        attention_maps(build("bert"), {"pixel_values": torch.zeros(1, 3, 8, 8)})


# What comes from a model or a tokenizer stays text


def test_no_token_can_end_the_element_that_holds_it(tmp_path):
    hostile_maps().save_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    payload, _ = read(tmp_path / "page.html")
    assert payload["entries"][0]["tokens"]["source"] == HOSTILE
    assert payload["entries"][0]["title"] == "</title><script>alert(1)</script>"
    plain = re.sub(r'<script type="text/plain".*?</script>', "", text, flags=re.S)
    assert "alert" not in plain
    assert plain.count("<script") == 1


def test_the_policy_names_the_hashes_of_what_is_there_and_nothing_else(tmp_path):
    maps_of(DECODER.build()).save_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none';")
    for element in ("script", "style"):
        (inside,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://|\bimport\(|\bfetch\(|XMLHttpRequest", text)


def test_the_built_script_is_that_of_the_sources():
    digest = hashlib.sha256()
    for source in sorted((ROOM / "src").iterdir()):
        digest.update(source.read_bytes())
    first = (ROOM / "page.js").read_text(encoding="utf-8").splitlines()[0]
    assert digest.hexdigest() in first, "page.js is older than page/src: run `make page`"


def test_a_notebook_shows_the_page_in_a_frame_that_reaches_nothing():
    frame = maps_of(DECODER.build())._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"')
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1])
    assert "weights-0-decoder-0" in elements(inside)


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    maps = maps_of(DECODER.build())
    (tmp_path / "page.html").write_text("before")
    monkeypatch.setattr(page, "pack_weights", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        maps.save_html(tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "before"


def test_what_would_be_too_large_is_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "SCORES_LIMIT", 10)
    maps_of(DECODER.build()).save_html(tmp_path / "page.html")
    payload, held = read(tmp_path / "page.html")
    assert payload["scoresLeftOut"]
    assert not any(key.startswith("scores") for key in held)
    assert packing.choose_rounding(int(9e6)) is packing.ROOT
    assert packing.choose_rounding(24 * 16 * 1000**2) is packing.COARSE


# Measures


def test_measures_are_what_they_are_called():
    tokens = ["a", "b", "c", "a", "b"]
    eye = torch.eye(5)
    previous = eye.roll(-1, dims=1)
    previous[0] = eye[0]
    induction = eye.clone()
    induction[3], induction[4] = eye[1], eye[2]  # after the earlier a, after the earlier b
    even = torch.full((5, 5), 0.2)
    first = torch.zeros(5, 5)
    first[:, 0] = 1
    weights = torch.stack((eye, previous.roll(0), induction, even, first))[None]
    found = {name: values[0] for name, values in measure_heads(weights, tokens, True).items()}
    assert found["diagonal"][0] == 1
    assert found["induction"].tolist()[2] == 1
    assert found["induction"][0] == 0
    assert found["first"][4] == 1
    torch.testing.assert_close(found["entropy"], torch.tensor([0, 0, 0, 5.0, 0]).log2().clamp(0))
    assert found["distance"][4] == 2  # 0, 1, 2, 3, 4
    shifted = torch.cat((eye[:1], eye[:-1]))[None, None]
    assert measure_heads(shifted, tokens, True)["previous"] == 1
    assert "induction" not in measure_heads(weights, list("abcde"), True)
    assert set(measure_heads(weights, tokens, False)) == {"entropy", "first"}


# The command


def test_the_command_writes_a_page_of_what_a_decoder_wrote(tmp_path, monkeypatch, capsys):
    folder_of(DECODER, tmp_path, monkeypatch)
    flags = ["--generate", "--new-tokens", "4", "--also", "9 8", "-o", "page.html"]
    assert main(["view", "model", "5 6 7", *flags]) == 0
    assert capsys.readouterr().out == "page.html\n"
    payload, _ = read("page.html")
    first, second = payload["entries"]
    assert (first["writtenFrom"], second["writtenFrom"]) == (3, 2)
    assert first["tokens"]["source"][:3] == ["5", "6", "7"]
    assert 3 < len(first["tokens"]["source"]) <= 7
    assert first["title"] == "model"


def test_the_command_shows_two_models_side_by_side(tmp_path, monkeypatch):
    folder_of(SEQ2SEQ, tmp_path, monkeypatch)
    build("bart").save_pretrained("bart")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bart" / name).write_bytes((tmp_path / "model" / name).read_bytes())
    assert main(["view", "model", "5 6", "--beside", "bart", "-o", "page.html"]) == 0
    payload, _ = read("page.html")
    assert [entry["title"] for entry in payload["entries"]] == ["model", "bart"]
    assert all(entry["writtenFrom"] == 1 for entry in payload["entries"])
    assert [one["kind"] for one in payload["entries"][1]["maps"]] == ["encoder", "decoder", "cross"]


def test_the_command_reads_a_model_of_transformers(tmp_path, monkeypatch, capsys):
    folder_of(DECODER, tmp_path, monkeypatch)
    build("bert").save_pretrained("bert")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bert" / name).write_bytes((tmp_path / "model" / name).read_bytes())
    assert main(["view", "bert", "5 6 7", "-o", "page.html"]) == 0
    weights = attention_maps(
        AutoModel.from_pretrained("bert"), {"input_ids": torch.tensor([[5, 6, 7]])}
    )["encoder"].weights
    payload, held = read("page.html")
    (one,) = payload["entries"][0]["maps"]
    shown = weights_in(payload, held, one, weights.shape)
    assert (shown - weights).abs().max() < 1e-5


@pytest.mark.parametrize("output", [[], ["-o", "page.html"]], ids=["tables", "page"])
def test_an_encoder_of_transformers_is_not_asked_to_generate(output, tmp_path, monkeypatch, capsys):
    """transformers makes a causal model of BERT, whose tokens attend to later ones all the same."""
    folder_of(DECODER, tmp_path, monkeypatch)
    build("bert").save_pretrained("bert")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bert" / name).write_bytes((tmp_path / "model" / name).read_bytes())
    assert main(["view", "bert", "5 6 7", "--generate", *output]) == 1
    assert "error: bert is an encoder, which does not generate" in capsys.readouterr().err
    assert not Path("page.html").exists()


REFUSED = {
    "model 5 --also 6": "--also has no meaning for tables and pictures: name a page",
    "model 5 --beside model": "--beside has no meaning",
    "model 5 -o page.html --heads 0": "--heads has no meaning for a page",
    "model 5 --target 6 -o page.html": "--target is for an encoder-decoder",
    "model 5 --generate --new-tokens 0": "--new-tokens is 0",
    "model 5 -o no/page.html": "there is no folder no",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_the_command_cannot_show_is_one_sentence(line, tmp_path, monkeypatch, capsys):
    folder_of(DECODER, tmp_path, monkeypatch)
    assert main(["view", *line.split()]) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith("error: ")
    assert REFUSED[line] in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
