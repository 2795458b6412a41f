"""The programs of examples/ that train, started as several processes on a CPU."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from support.paths import ROOT

LANGUAGE_MODEL = (
    "train_language_model --text words.txt --output model --max_steps 3 --save_steps 3 --dropout 0"
    " --vocab_size 300 --block_size 16 --hidden_size 32 --num_hidden_layers 1"
    " --num_attention_heads 4 --warmup_steps 0"
)
ADAPTERS = (
    "finetune_lora model --text words.txt --output adapters --max_steps 2 --max_length 16"
    " --dropout 0 --learning_rate 1e-2"
)
# Five pairs to measure by do not fill batches of four. The last two of them can be learned.
TRANSLATION = (
    "train_translation --source_file train.de --target_file train.en --output_dir translator"
    " --validation_source_file test.de --validation_target_file test.en"
    " --vocab_size 300 --hidden_size 32 --intermediate_size 32 --encoder_layers 1"
    " --decoder_layers 1 --num_attention_heads 2 --max_steps 120 --eval_strategy steps"
    " --eval_steps 120 --save_strategy no --max_length 12 --disable_tqdm True"
    " --learning_rate 1e-2"
)
# One start for all programs: starting takes most of the time. A batch of two processes has as many
# rows as a batch of one.
PROGRAMS = """
import runpy, shlex, sys, torch.distributed as dist
examples, rows, *commands = sys.argv[1:]
sys.path.insert(0, examples)
for command in commands:
    name, *words = shlex.split(command)
    flag = "--per_device_train_batch_size" if name == "train_translation" else "--batch_size"
    sys.argv = [f"{examples}/{name}.py", *words, flag, rows]
    if name == "train_translation":
        sys.argv += ["--per_device_eval_batch_size", rows]
    runpy.run_path(sys.argv[0], run_name="__main__")
    if dist.is_initialized():
        dist.barrier()  # the next program opens what the first process of this one saves
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What one process printed and wrote, and what two did, of the same commands."""
    launchers = {8: [], 4: ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]}
    found = []
    for rows, launcher in launchers.items():
        folder = tmp_path_factory.mktemp(f"rows{rows}")
        write_texts(folder)
        (folder / "programs.py").write_text(PROGRAMS)
        command = [sys.executable, *launcher, "programs.py", str(ROOT / "examples"), str(rows)]
        command += [LANGUAGE_MODEL, ADAPTERS, TRANSLATION]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
        assert run.returncode == 0, run.stderr[-3000:]
        found.append((folder, run.stdout))
    return found


def write_texts(folder):
    letters = torch.randint(97, 123, (6000,), generator=torch.Generator().manual_seed(0))
    (folder / "words.txt").write_text("".join(map(chr, letters.tolist())))
    german = ["ein Hund", "zwei Hunde", "eine Katze", "zwei Katzen", "ein Haus"]
    english = ["a dog", "two dogs", "a cat", "two cats", "a house"]
    another = ["no dog", "no dogs", "no cat", *english[3:]]
    for language, learned, asked in (("de", german, german), ("en", english, another)):
        (folder / f"train.{language}").write_text("\n".join(learned * 8) + "\n")
        (folder / f"test.{language}").write_text("\n".join(asked) + "\n")


@pytest.mark.slow
def test_two_processes_train_the_model_of_one_and_the_first_alone_writes(runs):
    (one, one_printed), (two, two_printed) = runs
    written = sorted(path.relative_to(one) for path in one.rglob("*.safetensors"))
    assert written
    for path in written:
        first, second = load_file(one / path), load_file(two / path)
        # Forty times as many steps: so much more rounding, which an optimizer makes larger.
        tolerance = 0.05 if path.parts[0] == "translator" else 1e-3
        for name in first:
            if not name.endswith("k_proj.bias"):  # without influence: what moves it is rounding
                apart = (second[name] - first[name]).norm() / first[name].norm()
                assert apart < tolerance, name
    for text in ("saved: ", "to evaluate on", "trainable params"):
        assert two_printed.count(text) == one_printed.count(text)


@pytest.mark.slow
def test_two_processes_count_every_translation_once(runs):
    for folder, _ in runs:
        results = json.loads((folder / "translator" / "validation_results.json").read_text())
        assert results["validation_exact_match"] == 2 / 5
