"""The translation program, and the dates it learns by: to its end, interrupted, and refusing."""

import datetime
import json
import re
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import dates
import pytest
import torch
import train_translation
from program import ProgramError
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import hf_tformer
from support.hub_server import HubServer, online

pytestmark = pytest.mark.usefixtures("warm_python")

EXAMPLES = Path(train_translation.__file__).parent
SIZES = {
    "number_of_dates": 64,
    "vocab_size": 300,
    "max_length": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "num_attention_heads": 2,
    "dropout": 0.1,
    "per_device_train_batch_size": 8,
    "num_train_epochs": 1,
    "logging_steps": 1,
    "use_cpu": True,
    "disable_tqdm": True,
}
TOY = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
GERMAN = ["ein Hund", "zwei Hunde", "eine Katze\u2028schläft", "zwei Katzen", "ein Haus"] * 4
ENGLISH = ["a dog", "two dogs", "a cat\u2028is asleep", "two cats", "a house"] * 4


@pytest.fixture(autouse=True)
def few_dates(monkeypatch):
    monkeypatch.setattr(dates, "HELD_OUT", 16)


def train(output, *options):
    train_translation.main([*TOY, "--output_dir", str(output), *map(str, options)])


def write_files(folder, name, german=GERMAN, english=ENGLISH):
    """The options that name two parallel files."""
    for language, lines in (("de", german), ("en", english)):
        (folder / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["--source_file", folder / f"{name}.de", "--target_file", folder / f"{name}.en"]


def weights_of(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict()


def test_no_date_of_one_split_is_in_another():
    splits = dates.date_pairs(5000)
    assert splits["test"] == dates.date_pairs(10)["test"]  # however many are learned from
    days = {split: {pair.target for pair in pairs} for split, pairs in splits.items()}
    assert not days["train"] & days["test"]
    assert not days["train"] & days["validation"]
    assert not days["validation"] & days["test"]
    assert {pair.language for pair in splits["train"]} == set(dates.LANGUAGES)
    assert len(dates.LANGUAGES) >= 10


def test_no_written_date_has_two_meanings():
    meanings = defaultdict(set)
    for year in (1999, 2024):
        for number in range(366):
            date = datetime.date(year, 1, 1) + datetime.timedelta(days=number)
            for language in dates.LANGUAGES:
                for form in dates.FORMATS:
                    meanings[dates.write_date(date, language, form)].add(date)
    assert len(meanings) > 10_000
    assert not [text for text, found in meanings.items() if len(found) > 1]


def test_dates_are_learned_and_measured_language_by_language(tmp_path, capsys):
    options = ["--num_train_epochs", 6, "--learning_rate", 1e-2, "--report_to", "tensorboard"]
    train(tmp_path / "out", *options)
    assert list((tmp_path / "out" / "runs").rglob("events.*"))
    state = json.loads((tmp_path / "out" / "checkpoint-48" / "trainer_state.json").read_text())
    losses = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
    assert losses[-1] < 0.6 * losses[0]
    measured = json.loads((tmp_path / "out" / "test_results.json").read_text())
    assert {"test_loss", "test_bleu", "test_exact_match"} <= set(measured)
    assert "% of" in capsys.readouterr().out


def test_the_modern_form_is_as_large_and_opens_like_the_other(tmp_path):
    train(tmp_path / "paper")
    train(tmp_path / "modern", "--modern", True)
    sizes = {}
    for name in ("paper", "modern"):
        model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name)
        sizes[name] = model.num_parameters()
    assert model.config.position_embedding_type == "rotary"
    assert model.config.qk_norm
    assert sizes["modern"] == pytest.approx(sizes["paper"], rel=0.03)


def test_what_two_files_taught_opens_with_the_auto_classes(tmp_path):
    validation = write_files(tmp_path, "val", GERMAN[:5], ENGLISH[:5])
    validation = [str(word).replace("--", "--validation_") for word in validation]
    files = write_files(tmp_path, "train")
    train(
        tmp_path / "out",
        *files,
        *validation,
        "--num_train_epochs",
        150,
        "--dropout",
        0,
        "--learning_rate",
        1e-2,
        "--save_strategy",
        "no",
        "--eval_strategy",
        "no",
    )
    measured = json.loads((tmp_path / "out" / "validation_results.json").read_text())
    assert measured["validation_exact_match"] == 1
    assert measured["validation_bleu"] == pytest.approx(100)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out", trust_remote_code=False)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    inputs = tokenizer(["zwei Hunde", "eine Katze\u2028schläft"], return_tensors="pt", padding=True)
    answers = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
    assert answers == ["two dogs", "a cat\u2028is asleep"]


def test_without_validation_files_the_last_pairs_are_kept_back(tmp_path, capsys):
    train(tmp_path / "out", *write_files(tmp_path, "train"), "--num_train_epochs", 0.1)
    assert "19 pairs to train on, 1 to evaluate on" in capsys.readouterr().out


@pytest.fixture
def data_set(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "pairs"
    folder.mkdir()
    rows = [
        {"translation": {"de": de, "en": en}, "id": n}
        for n, (de, en) in enumerate(zip(GERMAN, ENGLISH, strict=True))
    ]
    for split in ("train", "validation", "test"):
        lines = "\n".join(json.dumps(row) for row in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return folder


COLUMNS = ["--source_column", "translation.de", "--target_column", "translation.en"]


def test_a_data_set_with_nested_columns_is_learned_from(tmp_path, data_set):
    options = ["--generation_num_beams", 2, "--train_sampling_strategy", "group_by_length"]
    train(tmp_path / "out", "--dataset_name", data_set, *COLUMNS, *options)
    measured = json.loads((tmp_path / "out" / "test_results.json").read_text())
    assert measured["test_loss"] > 0
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").generation_config.num_beams == 2


KILLED_IN_MID_SAVE = """
import os, signal, sys
import transformers.modeling_utils as modeling
sys.path.insert(0, sys.argv.pop(1))
import dates, train_translation
dates.HELD_OUT = 16
write, written = modeling.safe_save_file, []
def write_half(tensors, path, **kwargs):
    write(tensors, path, **kwargs)
    written.append(path)
    if len(written) == 2:
        os.truncate(path, os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
modeling.safe_save_file = write_half
train_translation.main(sys.argv[1:])
"""


def test_a_run_killed_in_mid_save_goes_on_as_if_nothing_had_happened(tmp_path):
    saving = ["--save_strategy", "steps", "--save_steps", 3, "--dropout", 0.3]
    command = [sys.executable, "-c", KILLED_IN_MID_SAVE, str(EXAMPLES), *TOY]
    killed = tmp_path / "killed"
    process = subprocess.run(
        [*command, "--output_dir", str(killed), *map(str, saving)], capture_output=True, text=True
    )
    assert process.returncode == -signal.SIGKILL, process.stderr[-3000:]
    assert (killed / "checkpoint-6").is_dir()
    assert hf_tformer.last_complete_checkpoint(killed) == str(killed / "checkpoint-3")
    assert weights_of(killed / "checkpoint-3")
    train(killed, *saving, "--resume_from_checkpoint", "last")
    train(tmp_path / "whole", *saving)
    histories = [
        json.loads((tmp_path / run / "checkpoint-8" / "trainer_state.json").read_text())
        for run in ("killed", "whole")
    ]
    losses = [[e["loss"] for e in h["log_history"] if "loss" in e] for h in histories]
    assert len(losses[1]) == 8
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    torch.testing.assert_close(weights_of(killed), weights_of(tmp_path / "whole"))


def test_a_folder_with_nothing_but_half_a_checkpoint_is_trained_into_anew(tmp_path):
    (tmp_path / "out" / "checkpoint-8").mkdir(parents=True)
    (tmp_path / "out" / "checkpoint-8" / "model.safetensors").write_bytes(b"half")
    train(tmp_path / "out")
    assert hf_tformer.last_complete_checkpoint(tmp_path / "out").endswith("checkpoint-8")


def test_the_finished_model_is_pushed_with_its_code(tmp_path, monkeypatch):
    with HubServer() as server:
        online(monkeypatch, server, tmp_path / "home")
        train(tmp_path / "out", "--push_to_hub", "--hub_model_id", "user/dates")
        pushed = set(server.files("user/dates"))
    assert {"model.safetensors", "tokenizer.json", "modeling_seq2seq.py", "README.md"} <= pushed


def replaced(line, by):
    return [*GERMAN[: line - 1], by, *GERMAN[line:]]


FILES = {"unequal": GERMAN[:7], "empty": replaced(3, "  "), "good": GERMAN}
OUT = "OUT"  # the folder that is written to
REFUSED = {
    "a missing file": ("--source_file none.de --target_file good.en", "no file none.de"),
    "unequal files": (
        "--source_file unequal.de --target_file unequal.en",
        "unequal.de has 7 lines, unequal.en has 20 lines",
    ),
    "an empty line": (
        "--source_file empty.de --target_file empty.en",
        "line 3 of empty.de is empty",
    ),
    "half a pair": ("--source_file good.de", "--source_file is given without --target_file"),
    "no training files": (
        "--test_source_file good.de --test_target_file good.en",
        "nothing to train on",
    ),
    "long sentences only": (
        "--source_file good.de --target_file good.en --max_length 2",
        "more than --max_length 2",
    ),
    "a file that is not text": ("--source_file binary --target_file good.en", "not UTF-8"),
    "an unknown data set": ("--dataset_name nobody/nothing", "nobody/nothing cannot be loaded"),
    "a folder without data": ("--dataset_name empty-folder", "empty-folder cannot be loaded"),
    "sizes that do not fit": ("--hidden_size 15", "num_attention_heads"),
    "an unknown reporter": ("--report_to nonsense", "nonsense"),
    "no dates": ("--number_of_dates 0", "number_of_dates is 0"),
    "a mistyped option": ("--hiden_size 16", "hiden_size"),
    "a small vocabulary": ("--vocab_size 200", "at least 259"),
    "a paper's schedule without steps": ("--paper_schedule", "warmup_steps is 0.1"),
    "no checkpoint": ("--resume_from_checkpoint last", "holds no complete checkpoint"),
    "a wrong checkpoint": ("--resume_from_checkpoint empty-folder", "not a complete checkpoint"),
    "an unwritable folder": ("--output_dir good.de/out", "cannot be written to"),
    "no network": ("--push_to_hub --hub_model_id user/dates", "[Oo]ffline"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_in_a_sentence(options, message, tmp_path, monkeypatch):
    for name, german in FILES.items():
        write_files(tmp_path, name, german)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty-folder").mkdir()
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ProgramError, match=message) as refusal:
        train("out", *options.split())
    assert len(str(refusal.value).splitlines()) == 1
    assert not [path for path in set(tmp_path.rglob("*")) - before if path.is_file()]


def test_a_column_that_is_not_there_is_refused_with_those_that_are(tmp_path, data_set):
    with pytest.raises(ProgramError, match=r"no column source.*translation\.de, translation\.en"):
        train(tmp_path / "out", "--dataset_name", data_set)


def test_a_row_without_a_sentence_is_refused_by_its_number(tmp_path, data_set):
    with pytest.raises(ProgramError, match=r"row 0 of id in the split train .* is 0"):
        train(tmp_path / "out", "--dataset_name", data_set, *COLUMNS[:3], "id")


def test_another_model_is_not_overwritten(tmp_path):
    train(tmp_path / "out", "--save_strategy", "no")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with pytest.raises(ProgramError, match="holds a model already: choose another --output_dir"):
        train(tmp_path / "out")
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}


def test_a_run_is_continued_on_demand_only_and_with_its_own_sizes(tmp_path):
    train(tmp_path / "out")
    with pytest.raises(ProgramError, match="add --resume_from_checkpoint last"):
        train(tmp_path / "out")
    with pytest.raises(ProgramError, match=r"encoder_layers is 2, but .*checkpoint-8 has 1"):
        train(tmp_path / "out", "--encoder_layers", 2, "--resume_from_checkpoint", "last")
    train(tmp_path / "out", "--num_train_epochs", 2, "--resume_from_checkpoint", "last")
    assert (tmp_path / "out" / "checkpoint-16").is_dir()


def test_a_refusal_is_one_line_on_stderr_and_an_exit_code(tmp_path):
    program = [sys.executable, str(EXAMPLES / "train_translation.py")]
    refused = subprocess.run(
        [*program, "--source_file", "none.de", "--target_file", "none.en"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("train_translation.py: there is no file none.de")
    assert len(refused.stderr.splitlines()) == 1
    helped = subprocess.run([*program, "--help"], capture_output=True, text=True)
    assert helped.returncode == 0
    assert helped.stdout.index("--source_file") < helped.stdout.index("--report_to")


@pytest.mark.slow
def test_the_demo_answers_rightly_for_dates_it_has_never_seen(tmp_path):
    """Minutes of a CPU: what README promises of `make demo`."""
    demo = [sys.executable, str(EXAMPLES / "demo.py"), "--output", str(tmp_path / "out")]
    run = subprocess.run([*demo, "--use_cpu"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    share, number = re.search(r"([\d.]+)% of (\d+) dates that it had never", run.stdout).groups()
    assert float(share) >= 95
    assert int(number) >= 1000
    assert run.stdout.count("exactly right\n") >= 10
