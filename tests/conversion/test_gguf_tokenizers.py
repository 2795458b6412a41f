"""Tokenizers are recognised by what they do, and what llama.cpp lacks is refused by name.

Without llama.cpp: tests/runtimes/test_gguf.py asks it.
"""

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

import hf_tformer
from conversion import ConversionError
from conversion.runtimes.exporting import export_to_runtime
from conversion.runtimes.gguf.modelfile import modelfile
from conversion.runtimes.gguf.tokenizer import tokenizer_fields
from support.gguf_models import SMALL
from support.trained_tokenizers import END, KNOWN, NOT_QUITE, byte_level, cut_by, like_bert, wrapped

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def plain():
    return byte_level(ByteLevel(add_prefix_space=False))


@pytest.fixture(scope="module")
def tokenizer():
    return plain()


@pytest.mark.parametrize("name", KNOWN)
def test_a_tokenizer_is_recognised_by_what_it_does(name):
    make, called = KNOWN[name]
    tokenizer = make()
    fields = tokenizer_fields(tokenizer, len(tokenizer), [1])
    assert fields.get("ggml.pre", fields["ggml.model"]) == called


def test_a_file_says_all_of_a_tokenizer():
    tokenizer = plain()
    tokenizer.add_tokens(["hello there"])
    tokenizer.chat_template = "{{ messages }}"
    fields = tokenizer_fields(tokenizer, len(tokenizer) + 2, [0])
    added = tokenizer.convert_tokens_to_ids("hello there")
    kinds = fields["ggml.token_type"]
    assert kinds[:2] == [CONTROL, NORMAL]
    assert kinds[added:] == [USER_DEFINED, UNUSED, UNUSED]
    assert len(set(fields["ggml.tokens"])) == len(kinds) == len(tokenizer) + 2
    assert (fields["ggml.add_bos_token"], fields["ggml.add_eos_token"]) == (True, False)
    assert fields["ggml.bos_token_id"] == fields["ggml.eos_token_id"] == 0
    assert fields["chat_template"] == "{{ messages }}"


def with_normalizer():
    tokenizer = plain()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def with_two_tokens_before_a_text():
    tokenizer = plain()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{END} {END} $A", special_tokens=[(END, 0)]
    )
    return tokenizer


def of_words():
    words = Tokenizer(models.WordLevel({END: 0, "a": 1}, END))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return wrapped(words)


def without_bytes():
    pairs = Tokenizer(models.BPE({"a": 0, "b": 1, END: 2}, [], byte_fallback=True))
    return wrapped(pairs)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *((make, f"{name} is the nearest, which cuts") for name, make in NOT_QUITE.items()),
        (lambda: None, "there is no tokenizer.json"),
        (lambda: byte_level(ByteLevel(add_prefix_space=True)), "gpt-2 is the nearest"),
        (lambda: byte_level(cut_by(r"\p{L}+")), "cuts text as none of llama.cpp does"),
        (
            lambda: byte_level(ByteLevel(add_prefix_space=False), ignore_merges=True),
            "ignore_merges",
        ),
        (lambda: byte_level(ByteLevel(add_prefix_space=False), dropout=0.1), "dropout"),
        (with_normalizer, "normalizer in tokenizer.json is 'Lowercase'"),
        (with_two_tokens_before_a_text, "post_processor in tokenizer.json puts tokens"),
        (of_words, "model.type in tokenizer.json is 'WordLevel'"),
        (without_bytes, "there is no token <0x00>"),
        (lambda: like_bert(lowercase=False), "normalizer.lowercase in tokenizer.json is False"),
    ],
)
def test_what_llama_cpp_does_not_do_is_refused(make, words):
    tokenizer = make()
    with pytest.raises(ConversionError) as caught:
        tokenizer_fields(tokenizer, 1000, [0])
    assert words in str(caught.value)


def test_more_ends_than_llama_cpp_knows_are_refused(tokenizer):
    fields = tokenizer_fields(tokenizer, len(tokenizer), [3, 1, 2])
    ends = [fields[f"ggml.{name}_token_id"] for name in ("eos", "eot", "eom")]
    assert ends == [3, 1, 2]
    with pytest.raises(ConversionError, match=r"eos_token_id is \[0, 1, 2, 3\]"):
        tokenizer_fields(tokenizer, len(tokenizer), [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_act": "relu"}, "hidden_act is 'relu', which llama.cpp's llama cannot express"),
        ({"sliding_window": 5}, "sliding_window is 5, which llama.cpp's llama cannot express"),
        ({"norm_position": "post"}, "norm_position is 'post'"),
        ({"qk_norm": True, "attention_output_bias": True}, "attention_output_bias"),
        ({"eos_token_id": None}, "eos_token_id is None"),
        ({"position_embedding_type": "sinusoidal"}, "position_embedding_type is 'sinusoidal'"),
    ],
)
def test_a_model_that_llama_cpp_has_no_graph_for_is_refused(fields, words, tokenizer, tmp_path):
    assert words in refusal(tmp_path, tokenizer, **fields)


def test_rows_that_are_no_whole_blocks_are_refused(tokenizer, tmp_path):
    for dtype in ("q8_0", "q4_k_m"):
        assert f"hidden_size is 24, but {dtype} stores" in refusal(tmp_path, tokenizer, dtype=dtype)
    fields = {"hidden_size": 96, "dtype": "q8_0"}
    assert "intermediate_size is 20, but q8_0" in refusal(tmp_path, tokenizer, **fields)


def refusal(folder, tokenizer, dtype=None, **fields):
    config = hf_tformer.TformerDecoderConfig(**{**SMALL, "vocab_size": 409, **fields})
    hf_tformer.TformerDecoderForCausalLM(config).save_pretrained(folder / "ours")
    with pytest.raises(ConversionError) as caught:
        export_to_runtime(folder / "ours", folder / "out", "gguf", dtype, tokenizer=tokenizer)
    assert [path.name for path in folder.iterdir()] == ["ours"]
    return str(caught.value)


CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def test_ollama_is_told_how_turns_are_written():
    tokenizer = plain()
    assert modelfile("model.gguf", tokenizer, 77, [0]) == (
        f'FROM ./model.gguf\nPARAMETER num_ctx 77\nPARAMETER stop "{END}"\n'
    )
    tokenizer.chat_template = CHAT
    template = modelfile("model.gguf", tokenizer, 77, [0]).split('TEMPLATE """')[1]
    assert template == (
        "{{ if .System }}<system>{{ .System }}</system>{{ end }}"
        "{{ if .Prompt }}<user>{{ .Prompt }}</user><assistant>{{ end }}"
        '{{ .Response }}</assistant>"""\n'
    )


def test_a_template_that_treats_turns_differently_is_left_to_ollama():
    tokenizer = plain()
    tokenizer.chat_template = CHAT.replace("{{ m.content }}", "{{ loop.index }}{{ m.content }}")
    assert "TEMPLATE" not in modelfile("model.gguf", tokenizer, 77, [0])
