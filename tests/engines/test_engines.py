"""Other inference engines write the tokens that `generate()` writes, from the same random weights.

An engine is a package of its own; where it is missing, its tests are skipped and name it. Where an
engine dictates a size, a comment says so.
"""

import json
import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import hf_tformer
from conversion import export_checkpoint, import_checkpoint
from support.families import DECODER, ENCODER, SEQ2SEQ, random_rows, until_end
from support.leaves import ARCHITECTURES, backend_of
from support.parity import randomise
from support.parity_encoder import CASES

pytestmark = pytest.mark.engine

END, PAD = 2, 100  # Marian's padding is the last word: CTranslate2 takes it away
WORDS = ["<unk>", "<s>", "</s>", *(f"word{i}" for i in range(3, PAD)), "<pad>"]
ROWS = random_rows([3, 9, 6, 1, 2, 5, 8, 4], vocab_size=PAD)
NEW = 24
GREEDY = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": END}


@pytest.fixture
def ctranslate2():
    return pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")


@pytest.fixture
def serve(tmp_path):
    """Has vLLM continue the rows from a folder."""
    if find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    return partial(continued_by_vllm, tmp_path)


def save_words(folder):
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)})),
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
    ).save_pretrained(folder)


def export_for_ctranslate2(ctranslate2, model, to, folder):
    """The way a user goes: our folder with a tokenizer, theirs, CTranslate2's; where that lies."""
    model.save_pretrained(folder / "ours")
    save_words(folder / "ours")
    export_checkpoint(folder / "ours", folder / "theirs", to=to)
    ctranslate2.converters.TransformersConverter(str(folder / "theirs")).convert(folder / "ct2")
    return str(folder / "ct2")


def in_words(rows):
    return [[WORDS[i] for i in row] for row in rows]


MODERN = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    "rms_norm_eps": 1e-3,
    "tie_word_embeddings": False,
}
NARROW = {**MODERN, "head_dim": 6}  # for Llama and Qwen2, CTranslate2 knows no other than 36 / 6
GPT2 = {
    "position_embedding_type": "learned",
    "norm_type": "layernorm",
    "layer_norm_eps": 1e-5,  # CTranslate2 knows no other
    "mlp_type": "plain",
    "hidden_act": "gelu_new",
    "num_key_value_heads": None,
    "head_dim": None,
    "attention_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,  # CTranslate2 knows no other
    "rope_theta": 500.0,
}
DECODERS = {
    "llama": NARROW,
    "llama tied": {**NARROW, "tie_word_embeddings": True},
    "llama linear rope": {**NARROW, "rope_parameters": LINEAR},
    "llama llama3 rope": {**NARROW, "rope_parameters": LLAMA3},
    "mistral": MODERN,
    "mistral window": {**MODERN, "sliding_window": 12},  # the prompts fit into it
    "qwen2": {**NARROW, "attention_bias": True},
    "qwen3": {**MODERN, "qk_norm": True},
    "gpt2": GPT2,
}


@pytest.mark.parametrize("name", DECODERS)
def test_ctranslate2_continues_a_prompt_as_we_do(ctranslate2, tmp_path, name):
    model = DECODER.build(**DECODERS[name])
    folder = export_for_ctranslate2(ctranslate2, model, name.split()[0], tmp_path)
    engine = ctranslate2.Generator(folder, compute_type="float32")
    options = {"max_length": NEW, "include_prompt_in_result": False, "return_end_token": True}
    # One row at a time: beside a shorter prompt, it counts the rest of a longer one as an answer.
    results = [engine.generate_batch([row], **options)[0] for row in in_words(ROWS)]
    expected = DECODER.generate(model, ROWS, **GREEDY)
    assert [result.sequences_ids[0] for result in results] == expected


@torch.no_grad()
def marian_that_ends():
    """Rows end at different lengths, and padding is what it is in every Marian: a row of zeros
    that is never written."""
    model = SEQ2SEQ.build(
        sinusoidal_layout="halves",
        hidden_act="swish",
        lm_head_bias=True,
        num_key_value_heads=None,
        head_dim=None,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
    )
    model.get_input_embeddings().weight[PAD] = 0
    model.lm_head.bias[END] += 4
    model.generation_config.bad_words_ids = [[PAD]]
    return model


# CTranslate2 stops at as many finished rows as it has beams, and may return an empty row only when
# told so.
SEARCHES = {
    "greedy": ({}, {"beam_size": 1}),
    "4 beams": (
        {"num_beams": 4, "early_stopping": True, "length_penalty": 1.0},
        {"beam_size": 4, "length_penalty": 1.0},
    ),
    "4 beams, length penalty 2": (
        {"num_beams": 4, "early_stopping": True, "length_penalty": 2.0},
        {"beam_size": 4, "length_penalty": 2.0},
    ),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_ctranslate2_translates_as_we_do(ctranslate2, tmp_path, search):
    ours, theirs = SEARCHES[search]
    model = marian_that_ends()
    expected = SEQ2SEQ.generate(model, ROWS, **GREEDY, **ours)
    assert len({len(row) for row in expected}) > 2, "the rows are to end at different lengths"
    folder = export_for_ctranslate2(ctranslate2, model, "marian", tmp_path)
    results = ctranslate2.Translator(folder, compute_type="float32").translate_batch(
        in_words(ROWS),
        max_decoding_length=NEW,
        min_decoding_length=0,
        return_end_token=True,
        **theirs,
    )
    assert [result.hypotheses[0] for result in results] == in_words(expected)


# A program of its own, as those who serve have it: its first lines run again in every process that
# vLLM starts, so none of them can import this package.
SERVER = """
import json, sys
from pathlib import Path

sys.modules["hf_tformer"] = None

if __name__ == "__main__":
    from vllm import LLM, SamplingParams

    rows, options, how = json.loads(sys.argv[1])
    results = LLM(**options).generate(
        [{"prompt_token_ids": row} for row in rows], SamplingParams(**how), use_tqdm=False
    )
    tokens = [list(result.outputs[0].token_ids) for result in results]
    Path("tokens.json").write_text(json.dumps(tokens))
"""
SETTINGS = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"}  # GiB
EXACT = {"dtype": "float32", "enforce_eager": True, "max_model_len": 64, "max_num_seqs": 4}
IDS_ALONE = {"skip_tokenizer_init": True}
GREEDY_VLLM = {"temperature": 0, "max_tokens": NEW, "ignore_eos": True, "detokenize": False}


def continued_by_vllm(tmp_path, folder, **options):
    options = {"model": str(folder), **EXACT, **IDS_ALONE, **options}
    run_program(tmp_path, SERVER, [ROWS, options, GREEDY_VLLM])
    tokens = json.loads((tmp_path / "tokens.json").read_text())
    return [until_end(row, END) for row in tokens]


def run_program(folder, program, command):
    """Apart from the tests: vLLM starts processes of its own, which import the program again."""
    (folder / "program.py").write_text(program)
    run = subprocess.run(
        [sys.executable, "program.py", json.dumps(command)],
        cwd=folder,
        env={**os.environ, "HF_MODULES_CACHE": str(folder / "modules"), **SETTINGS},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, faults_of(run)


def faults_of(run):
    """What a worker of vLLM stopped by stands far above the end, and not where errors go."""
    told = (run.stdout + run.stderr).splitlines()
    return "\n".join([*(line for line in told if "Error: " in line), *told[-50:]])


WIDE = {**MODERN, "head_dim": 32}  # vLLM's attention has no smaller one on a CPU


def test_vllm_serves_the_export_to_llama(serve, tmp_path):
    model = DECODER.build(**WIDE)
    model.save_pretrained(tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "llama", to="llama")
    assert serve(tmp_path / "llama") == DECODER.generate(model, ROWS, **GREEDY)


OWN_FOLDERS = {
    "grouped queries": WIDE,
    "a window, norms of heads, biases": {
        **WIDE,
        "sliding_window": 3,
        "layer_types": ["sliding_attention", "full_attention"],
        "qk_norm": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "learned positions, layer norms, a plain MLP": {
        **GPT2,
        "head_dim": 32,
        "attention_scale": 0.3,
        "logit_scale": 0.5,
        "scale_embedding": True,
    },
    "Gemma": {**WIDE, **ARCHITECTURES["decoder"]["Gemma"]},
    "OLMo": {**WIDE, **ARCHITECTURES["decoder"]["OLMo"]},
    "side by side, scaled branches": {
        **WIDE,
        "norm_type": "layernorm_unbiased",
        "parallel_residual": "shared",
        "residual_multiplier": 0.3,
    },
}


@pytest.mark.parametrize("name", OWN_FOLDERS)
def test_vllm_serves_our_folder_with_the_code_it_brings(serve, tmp_path, name):
    model = DECODER.build(backend_of(OWN_FOLDERS[name]), **OWN_FOLDERS[name])
    model.save_pretrained(tmp_path / "ours")
    found = serve(tmp_path / "ours", model_impl="transformers", trust_remote_code=True)
    assert found == DECODER.generate(model, ROWS, **GREEDY)


def test_vllm_refuses_what_it_would_leave_out_of_the_scores(serve, tmp_path):
    bloom = {"score_bias": "alibi", "position_embedding_type": "none"}
    DECODER.build(head_dim=32, **bloom).save_pretrained(tmp_path / "ours")
    with pytest.raises(AssertionError, match="score_bias is 'alibi', which vllm attention"):
        serve(tmp_path / "ours", model_impl="transformers", trust_remote_code=True)


# Encoders: a vector for each token.
POOL = """
import json, sys
from pathlib import Path

sys.modules["hf_tformer"] = None

if __name__ == "__main__":
    from vllm import LLM
    from vllm.config import PoolerConfig

    task, rows, options = json.loads(sys.argv[1])
    pooler = PoolerConfig(task=task, use_activation=False)
    results = LLM(runner="pooling", pooler_config=pooler, **options).encode(
        [{"prompt_token_ids": row} for row in rows], pooling_task=task, use_tqdm=False
    )
    Path("pooled.json").write_text(json.dumps([r.outputs.data.tolist() for r in results]))
"""


def pooled_by_vllm(folder, model, task):
    """What vLLM makes of each row: a vector or scores, of all of it or of each token."""
    if find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    model.save_pretrained(folder / "ours")
    save_words(folder / "ours")
    options = {"model": str(folder / "ours"), **EXACT, "trust_remote_code": True}
    run_program(folder, POOL, [task, ROWS, {**options, "model_impl": "transformers"}])
    return json.loads((folder / "pooled.json").read_text())


HEAD_DIM = {"head_dim": 32}  # the least that vLLM's kernels take
BERT_CLASSES = {"classifier_act": "tanh", "classifier_norm": False, "head_bias": True}


@torch.no_grad()
def test_vllm_makes_the_vectors_of_an_encoder_with_the_code_it_brings(tmp_path):
    sizes = {**HEAD_DIM, "num_hidden_layers": 3, "sliding_window": 3}
    model = ENCODER.build(model_class=ENCODER.base_class, **sizes)
    found = pooled_by_vllm(tmp_path, model, "token_embed")
    for row, vectors in zip(ROWS, found, strict=True):
        expected = model(torch.tensor([row])).last_hidden_state[0]
        torch.testing.assert_close(torch.tensor(vectors), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fields", [{}, BERT_CLASSES], ids=["default", "bert"])
@torch.no_grad()
def test_vllm_classifies_texts_with_the_code_an_encoder_brings(tmp_path, fields):
    texts = hf_tformer.TformerEncoderForSequenceClassification
    model = ENCODER.build(model_class=texts, num_labels=5, **HEAD_DIM, **fields)
    found = pooled_by_vllm(tmp_path, model, "classify")
    for row, scores in zip(ROWS, found, strict=True):
        expected = model(torch.tensor([row])).logits[0]
        torch.testing.assert_close(torch.tensor(scores), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "fields", [{}, {**BERT_CLASSES, "classifier_act": None}], ids=["default", "bert"]
)
@torch.no_grad()
def test_vllm_classifies_tokens_with_the_code_an_encoder_brings(tmp_path, fields):
    tokens = hf_tformer.TformerEncoderForTokenClassification
    model = ENCODER.build(model_class=tokens, num_labels=5, **HEAD_DIM, **fields)
    found = pooled_by_vllm(tmp_path, model, "token_classify")
    for row, scores in zip(ROWS, found, strict=True):
        expected = model(torch.tensor([row])).logits[0]
        torch.testing.assert_close(torch.tensor(scores), expected, rtol=1e-4, atol=1e-4)


# Sentences, by the code that a folder brings.

TEXTS = ["word3 word4 word5", "word9", "word7 word8 word9 word30 word31 word32"]
TAKE_ENCODER = """
import sys

sys.modules["hf_tformer"] = None

from transformers import AutoModelForTextEncoding, AutoTokenizer

AutoModelForTextEncoding.from_pretrained("both", trust_remote_code=True).save_pretrained("alone")
AutoTokenizer.from_pretrained("both", trust_remote_code=False).save_pretrained("alone")
"""
ENCODE = """
import json, sys

sys.modules["hf_tformer"] = None

from sentence_transformers import SentenceTransformer

folder, texts = json.loads(sys.argv[1])
model = SentenceTransformer(folder, trust_remote_code=True)
print(json.dumps([model.encode(texts, **how).tolist() for how in ({}, {"prompt_name": "query"})]))
"""
BODIES = ("bert", "roberta", "mpnet", "electra", "distilbert", "modernbert", "eurobert")


def split_words():
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<s>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # Padding is 1 in all of these.
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<s>")


def save_sentence_model(folder, form):
    """The model of transformers with pooling, a dense layer, norm and a prompt, as it is saved."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import (
        Dense,
        Normalize,
        Pooling,
        Transformer,
    )

    case = CASES[f"{form} Model"]
    randomise(case.build_one(case.their_classes, case.theirs)).save_pretrained(folder / "body")
    split_words().save_pretrained(folder / "body")
    body = Transformer(str(folder / "body"), max_seq_length=11)
    around = [Pooling(30, pooling_mode="mean"), Dense(30, 7), Normalize()]
    prompts = {"query": "word40 "}
    model = SentenceTransformer(modules=[body, *around], prompts=prompts, device="cpu")
    model.save(str(folder / "theirs"))


def encoded(folder, program=ENCODE):
    command = [sys.executable, "-c", program, json.dumps([str(folder), TEXTS])]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)
    assert run.returncode == 0, run.stderr[-2000:]
    return torch.tensor(json.loads(run.stdout.splitlines()[-1]))


@pytest.mark.parametrize("form", BODIES)
def test_sentence_transformers_makes_the_vectors_that_it_made_before(form, tmp_path):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    save_sentence_model(tmp_path, form)
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to=form)
    expected = encoded(tmp_path / "theirs")
    assert not torch.allclose(expected[0], expected[1], atol=1e-2), "the prompt has to count"
    for folder in ("ours", "back"):
        actual = encoded(tmp_path / folder)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_sentence_transformers_takes_the_encoder_of_an_encoder_decoder(tmp_path):
    """As it comes out of a folder of both; without more words it takes the mean of the states."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    model = SEQ2SEQ.build(pad_token_id=1)
    model.save_pretrained(tmp_path / "both")
    tokenizer = split_words()
    tokenizer.save_pretrained(tmp_path / "both")
    taken = subprocess.run([sys.executable, "-c", TAKE_ENCODER], capture_output=True, cwd=tmp_path)
    assert taken.returncode == 0, taken.stderr[-2000:]
    program = ENCODE.replace('({}, {"prompt_name": "query"})', "[{}]")
    (found,) = encoded(tmp_path / "alone", program)
    for text, vector in zip(TEXTS, found, strict=True):
        states = model.get_encoder()(**tokenizer(text, return_tensors="pt")).last_hidden_state
        torch.testing.assert_close(vector, states[0].mean(0), rtol=1e-4, atol=1e-5)
