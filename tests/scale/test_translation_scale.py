"""A translation model has the same losses on any number of processes, also where a run goes on."""

import json
import os
import subprocess
import sys

import pytest

from support.paths import ROOT

# 67 pairs are eight steps of eight: the run ends in the third epoch, and is saved in the second.
TRAIN = (
    "--source_file train.de --target_file train.en"
    " --validation_source_file test.de --validation_target_file test.en"
    " --vocab_size 300 --hidden_size 16 --intermediate_size 16 --encoder_layers 1"
    " --decoder_layers 1 --num_attention_heads 2 --max_length 12 --max_steps 20 --save_steps 10"
    " --save_strategy steps --eval_strategy no --logging_steps 1 --disable_tqdm True --use_cpu"
)
HALVES = "--per_device_train_batch_size 4"
AT_ONCE = "--per_device_train_batch_size 8 --peak_flops 1e12"
ACCUMULATED = f"{HALVES} --gradient_accumulation_steps 2 --dataloader_num_workers 2"
QUARTERS = "--per_device_train_batch_size 2"
GO_ON = "--resume_from_checkpoint two/checkpoint-10"
# processes → the runs of one start, by their folder
RUNS = {
    2: {"two": HALVES},
    1: {"one": AT_ONCE, "accumulated": ACCUMULATED, "two, then one": f"{AT_ONCE} {GO_ON}"},
    4: {"four": QUARTERS, "two, then four": f"{QUARTERS} {GO_ON}"},
}
PROGRAMS = """
import sys
sys.path.insert(0, sys.argv[1])
import train_translation
for command in sys.argv[2:]:
    folder, words = command.split(": ")
    train_translation.main([*words.split(), "--output_dir", folder])
"""


@pytest.fixture(scope="module")
def histories(tmp_path_factory):
    """What each run has logged, by its name."""
    place = tmp_path_factory.mktemp("translation")
    for name, count in (("train", 67), ("test", 3)):
        lines = [f"{number} {'Haus ' * (number % 5)}ist da" for number in range(count)]
        (place / f"{name}.de").write_text("\n".join(lines))
        english = [line.replace("Haus", "house").replace("ist da", "is here") for line in lines]
        (place / f"{name}.en").write_text("\n".join(english))
    (place / "programs.py").write_text(PROGRAMS)
    for processes, runs in RUNS.items():
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        launched = [] if processes == 1 else [*launcher, str(processes)]
        commands = [f"{folder}: {TRAIN} {flags}" for folder, flags in runs.items()]
        run = subprocess.run(
            [sys.executable, *launched, "programs.py", str(ROOT / "examples"), *commands],
            capture_output=True,
            text=True,
            timeout=900,
            cwd=place,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert run.returncode == 0, run.stderr[-3000:]
    names = [name for runs in RUNS.values() for name in runs]
    states = {name: place / name / "checkpoint-20" / "trainer_state.json" for name in names}
    return {name: json.loads(path.read_text())["log_history"] for name, path in states.items()}


def losses_of(history):
    return [entry["loss"] for entry in history if "loss" in entry]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for runs in RUNS.values() for name in runs])
def test_the_losses_are_those_of_one_process(name, histories):
    found, expected = losses_of(histories[name]), losses_of(histories["one"])
    assert len(found) == 20
    assert found == pytest.approx(expected, rel=1e-4)
    assert found[-1] < found[0]


@pytest.mark.slow
def test_the_log_says_how_fast_it_is(histories):
    for name, history in histories.items():
        speeds = [entry["tokens_per_second"] for entry in history if "loss" in entry]
        assert min(speeds) > 0
        was_told_the_peak = name in ("one", "two, then one")
        assert any("mfu" in entry for entry in history) == was_told_the_peak
