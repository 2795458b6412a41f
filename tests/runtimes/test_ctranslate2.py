"""Whatever is exported to CTranslate2 answers there as our model does; the rest is refused."""

import subprocess
import sys

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmarks import apart
from benchmarks.measure import OURS, Limits, Settings, race
from benchmarks.registry import BENCHMARKS
from conversion.engine.errors import ConversionError
from conversion.runtimes import ctranslate2 as runtime
from conversion.runtimes.exporting import export_to_runtime, library_of
from conversion.runtimes.runtime import Source
from support.drawn_ctranslate2 import BEGINNINGS, FORMS_OF, beginning, draw
from support.families import DECODER, ENCODER, SEQ2SEQ

pytestmark = pytest.mark.runtime
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

FAMILIES = {family.name: family for family in (DECODER, SEQ2SEQ, ENCODER)}
# Without the mixture, which is refused.
by_writers = pytest.mark.parametrize("family", [DECODER, SEQ2SEQ], ids=lambda family: family.name)
WHOLE = {"num_key_value_heads": None, "head_dim": None}
ALL_EQUAL = {1: (3, 3), 4: (3, 3)}
END = 2
ROW = [5, 9, 11]


def save(folder, family, fields, model_class=None):
    if model_class is None:
        model_class = family.base_class if family is ENCODER else family.model_class
    family.build(model_class=model_class, **fields).save_pretrained(folder / "ours")
    return folder / "ours"


def export(folder, **options):
    return export_to_runtime(folder / "ours", folder / "ct2", "ctranslate2", **options)


def save_tokenizer(folder, size):
    """Words, fewer than the model has rows; one id in between has none."""
    ids = [i for i in range(size) if i != 7]
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": END} | {f"word{i}": i for i in ids[3:]}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)


CASES = [(name, i) for name, beginnings in BEGINNINGS.items() for i in range(len(beginnings))]


@pytest.mark.parametrize(("name", "place"), CASES, ids=lambda value: str(value))
def test_every_form_answers_and_writes_as_our_model_does(tmp_path, name, place):
    fields = beginning(FAMILIES[name], place)
    source = save(tmp_path, FAMILIES[name], fields)
    assert form_of(source).name == FORMS_OF[name][place]
    proof = export(tmp_path).proof
    assert proof.difference <= 1e-5 * max(1.0, proof.largest)
    assert proof.equal_texts == ({} if name == "encoder" else ALL_EQUAL)


def form_of(folder):
    return runtime.loader_for(source_of(folder))[0]


def source_of(folder):
    library = library_of(folder)
    return Source(folder, library, library.load_config(folder), "float32")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", FAMILIES)
def test_a_random_model_is_proven_or_refused_before_anything_is_written(tmp_path, name, seed):
    model_class, fields = draw(FAMILIES[name], seed)
    try:
        source = save(tmp_path, FAMILIES[name], fields, model_class)
    except ValueError:
        pytest.skip("makes no model")
    try:
        form_of(source)
    except ConversionError:
        with pytest.raises(ConversionError):
            export(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["ours"]
    else:
        assert export(tmp_path).proof.difference is not None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("family", [DECODER, SEQ2SEQ, ENCODER], ids=lambda family: family.name)
def test_smaller_numbers_make_smaller_files_that_answer_nearly_alike(tmp_path, family, dtype):
    sizes = {"hidden_size": 72, "intermediate_size": 144, "head_dim": 12}
    save(tmp_path, family, {**beginning(family, 0), **sizes})
    done = export(tmp_path, dtype=dtype)
    whole = export_to_runtime(tmp_path / "ours", tmp_path / "whole", "ctranslate2", verify=False)
    part = 0.5 if dtype == "int8" else 0.6  # tables of places, norms and scales stay whole in int8
    assert weight_of(done) < part * weight_of(whole)
    assert done.proof.difference > 0


def weight_of(done):
    return (done.folder / "model.bin").stat().st_size


@by_writers
def test_the_lines_of_the_card_write_what_generate_writes(tmp_path, family):
    model = family.build(**WHOLE)
    [text] = family.generate(model, [ROW], max_new_tokens=9)
    model.generation_config.bad_words_ids = [[text[0]], [text[-1]]]
    model.save_pretrained(tmp_path / "ours")
    save_tokenizer(tmp_path / "ours", size=90)
    export(tmp_path)
    card = (tmp_path / "ct2/README.md").read_text()
    program = card.split("```python\n")[1].split("```")[0].replace("a text", "word5 word9 word11")
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    beams = {} if family is DECODER else {"num_beams": 4, "early_stopping": True}
    length = 50 if family is DECODER else 256
    [expected] = family.generate(model, [ROW], max_new_tokens=length, **beams)
    words = [f"word{i}" if i < 90 and i != 7 else "" for i in expected if i > END]
    expected = [word for word in words if word]
    assert len(expected) > 9
    # The lines write as long as they may: after a hundred tokens, rounding decides between beams.
    assert run.stdout.split()[:40] == expected[:40]


def test_a_folder_holds_what_its_users_expect_and_no_code(tmp_path):
    save(tmp_path, DECODER, {})
    save_tokenizer(tmp_path / "ours", size=101)
    export(tmp_path)
    found = {path.name for path in (tmp_path / "ct2").iterdir()}
    tokenizer = {"tokenizer.json", "tokenizer_config.json"}
    ours = {"README.md", "generation_config.json"}
    assert found == {"model.bin", "config.json", "vocabulary.json", *ours, *tokenizer}


@by_writers
def test_texts_end_at_each_of_several_tokens(tmp_path, family):
    model = family.build(**WHOLE)
    [text] = family.generate(model, [ROW], max_new_tokens=12, eos_token_id=None)
    unwritten = next(i for i in range(3, 99) if i not in text)
    model.generation_config.eos_token_id = ends = [unwritten, text[6]]
    model.save_pretrained(tmp_path / "ours")
    done = export(tmp_path)
    assert f"end_token={ends}" in (tmp_path / "ct2/README.md").read_text()
    [written] = done.runtime.open(source_of(tmp_path / "ours"), done.folder).generate([ROW], 12, 1)
    assert written == text[: text.index(text[6]) + 1]


def test_a_source_in_halves_and_many_files_is_proven_too(tmp_path):
    model = DECODER.build(hidden_size=72, intermediate_size=144).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "ours", max_shard_size="100KB")
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 1
    assert export(tmp_path).proof.equal_texts == ALL_EQUAL


def test_what_ctranslate2_misreads_leaves_nothing(tmp_path, monkeypatch):
    save(tmp_path, DECODER, {"rms_norm_eps": 1e-2})
    complete = runtime.complete

    def wrongly(spec, loader, source):
        complete(spec, loader, source)
        spec.config.layer_norm_epsilon = 1e-6

    monkeypatch.setattr(runtime, "complete", wrongly)
    with pytest.raises(ConversionError, match="nothing is kept"):
        export(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def ways(workload, *dtypes):
    """Only ours and CTranslate2: the others have tests of their own."""
    kept = [OURS, *(f"CTranslate2, {dtype}" for dtype in dtypes)]
    workload.contestants = {name: workload.contestants[name] for name in kept}
    return workload


@pytest.mark.parametrize("text", ["3M parameters, batch 3", "encoder-decoder"])
def test_the_benchmark_times_it(text):
    settings = Settings(rounds=1, quick=True)
    workloads = BENCHMARKS["engines"].workloads(settings)  # which keeps the files until it ends
    workload = ways(next(one for one in workloads if text in one.label), "float32", "int8")
    _, exact, rounded = race(workload, settings, Limits(flops=1e9, bytes=1e9))
    assert exact.ratio > 0
    assert rounded.ratio > 0


def test_the_benchmark_weighs_what_it_opens():
    settings = Settings(quick=True)
    workloads = BENCHMARKS["engines"].workloads(settings)
    workload = ways(next(one for one in workloads if "MiB" in one.measures), "float32")
    _, row = apart.weigh("engines", workload, settings)
    assert row.theirs > 0
