"""One of four processes is killed, again and again: the run ends as if nothing had happened.

`SEED=3 pytest -m slow tests/scale/test_scale_kills.py` tries other moments.
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import torch
from safetensors.torch import load_file

from support.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them"),
]

KILLS = 5  # in each run
STEPS, SAVED_EACH = 60, 2
PROGRAM = f"""train_language_model.py --text words.txt --vocab_size 300 --block_size 16
 --hidden_size 32 --num_hidden_layers 2 --num_attention_heads 4 --warmup_steps 5
 --max_steps {STEPS} --save_steps {SAVED_EACH} --log_steps 1 --global_batch_size 8 --batch_size 8"""
LAYOUTS = {
    "copies": "--replicate 4",
    "shards": "--shard 4 --save_in_background",
    "copies of shards": "--replicate 2 --shard 2",
    "shards of parts": "--shard 2 --tensor 2 --save_in_background",
}
REAL_PYTHON = sys.executable
STEP = re.compile(r"step (\d+): loss ([\d.]+)")
LIMIT = 900  # seconds of a run


class Run:
    """The program under torchrun, and what it has said so far: the last loss of each step."""

    def __init__(self, folder, layout, output, restarts=0):
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
        command += [f"--max-restarts={restarts}", "--monitor-interval=0.1"]
        words = [*PROGRAM.split(), *layout.split(), "--output", output]
        # torchrun is a real Python, so that its children are known; they are warm ones.
        warm = folder / "python"
        warm.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} "$@"\n')  # without its -u
        warm.chmod(0o755)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHON_EXEC": str(warm)}
        self.output, self.complaint = folder / output, (folder / f"{output}.err").open("w+")
        self.process = subprocess.Popen(
            [REAL_PYTHON, *command, ROOT / "examples" / words[0], *words[1:]],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self.complaint,
            text=True,
        )
        self.losses, self.said = {}, 0
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if found := STEP.match(line):
                self.losses[int(found[1])] = float(found[2])
                self.said += 1

    def wait_for_steps(self, count):
        """So many more, or the end."""
        wanted = self.said + count
        while self.said < wanted and self.process.poll() is None:
            time.sleep(0.005)

    def kill_one(self):
        """Whether somebody was there to be killed, and whether a checkpoint was being written."""
        workers = psutil.Process(self.process.pid).children() if self.is_running() else []
        if len(workers) < 4:
            return None
        is_saving = any(self.output.glob("*.partial"))
        random.choice(workers).send_signal(signal.SIGKILL)
        return is_saving

    def is_running(self):
        return self.process.poll() is None

    def end(self):
        try:
            status = self.process.wait(LIMIT)
        finally:
            self.process.kill()
        self.reader.join()
        self.complaint.seek(0)
        assert status == 0, self.complaint.read()[-5000:]
        return self.losses, load_file(self.output / "model.safetensors")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_whose_processes_are_killed_ends_as_if_nothing_had_happened(layout, tmp_path):
    random.seed(f"{os.environ.get('SEED', '0')} {layout}")
    letters = torch.randint(97, 123, (6000,), generator=torch.Generator().manual_seed(0))
    (tmp_path / "words.txt").write_text("".join(map(chr, letters.tolist())))
    losses, weights = Run(tmp_path, LAYOUTS[layout], "undisturbed").end()
    assert sorted(losses) == list(range(1, STEPS + 1))

    run = Run(tmp_path, LAYOUTS[layout], "disturbed", restarts=KILLS)
    kills = {"while saving": 0, "between": 0}
    while sum(kills.values()) < KILLS and run.is_running():
        run.wait_for_steps(random.randint(1, STEPS // KILLS - 2))
        time.sleep(random.uniform(0, 0.3))
        was_saving = run.kill_one()
        if was_saving is not None:
            kills["while saving" if was_saving else "between"] += 1
    found_losses, found_weights = run.end()
    print(layout, kills)
    assert sum(kills.values()) == KILLS
    assert sorted(found_losses) == sorted(losses)
    for step, loss in losses.items():
        assert found_losses[step] == pytest.approx(loss, rel=1e-4), step
    torch.testing.assert_close(found_weights, weights, rtol=1e-4, atol=1e-5)
    assert not list(run.output.glob("*.partial"))
