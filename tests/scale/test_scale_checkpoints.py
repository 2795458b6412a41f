"""Nothing of a run is lost: any layout reads what any other saved, and a failure leaves the last
checkpoint as it was."""

import os
import subprocess
import sys

import pytest
from transformers import AutoConfig

from hf_tformer.testing import travel
from support import scale_faults, scale_runs
from support.families import by_model_type
from support.paths import ROOT, TESTS

pytestmark = [
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked"),
]


def run(module, *words):
    """What a program of these tests prints; it forks the processes that it takes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (TESTS, ROOT)))
    command = [sys.executable, "-m", module.__name__, *map(str, words)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-5000:]
    return ended.stdout.splitlines()


def runs(folder, case):
    """The folders that a case saved, once every layout has read every other."""
    told = set(run(scale_runs, folder, case.name))
    assert len(told) == len(case.written) * (1 + len(case.read)), told
    return [folder / f"{name}, saved" for name in case.written]


def test_another_number_of_processes_goes_on_with_the_run(tmp_path):
    """All weights and all states of the optimizer are those that were saved, bit by bit."""
    runs(tmp_path, scale_runs.SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("case", scale_runs.CASES, ids=lambda case: case.name)
def test_every_layout_reads_every_other_and_its_folder_travels(case, tmp_path):
    cases = []
    for folder in runs(tmp_path, case):
        family = by_model_type[AutoConfig.from_pretrained(folder).model_type]
        model = family.model_class.from_pretrained(folder)
        answers = travel.write(folder.with_name(f"{folder.name} again"), family, model)
        cases.append((folder, family.auto.__name__, answers, tmp_path / "third" / folder.name))
    travel.expect_same_elsewhere(tmp_path, *cases)


def test_what_fails_in_one_process_is_told_to_all_and_the_last_checkpoint_stays(tmp_path):
    told = run(scale_faults, tmp_path)
    assert set(told) >= {case.__name__ for case in scale_faults.CASES}
