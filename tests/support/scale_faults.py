"""What goes wrong in one of two processes that save checkpoints.

    python -m support.scale_faults FOLDER

Each case runs in both of them, forked, and prints its name once it has ended as it should.
"""

import os
import resource
import shutil
import signal
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hf_tformer.scale import (
    CheckpointError,
    CheckpointWriter,
    last_checkpoint,
    load_checkpoint,
    save_checkpoint,
    save_folder,
)
from support.families import DECODER
from support.forked import in_processes


def names(folder):
    dist.barrier()
    found = sorted(path.name for path in folder.iterdir())
    dist.barrier()
    return found


def is_first():
    return dist.get_rank() == 0


def in_one(work, *arguments):
    """Between two barriers, in the first process alone."""
    dist.barrier()
    if is_first():
        work(*arguments)
    dist.barrier()


@contextmanager
def full_disk(rank, size=2**12):
    """In one process no file grows beyond the size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if dist.get_rank() == rank:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def a_full_disk_in_one_process_is_told_to_all(folder):
    model = DECODER.build()
    save_checkpoint(folder, 1, model)
    for rank in (0, 1):
        with full_disk(rank), pytest.raises(CheckpointError) as told:
            save_checkpoint(folder, 2, model)
        assert str(folder) in str(told.value)
        assert "File too large" in str(told.value), told.value
        assert names(folder) == ["checkpoint-1"]
    save_checkpoint(folder, 2, model)
    assert last_checkpoint(folder) == folder / "checkpoint-2"


def a_full_disk_in_the_background_is_told_at_the_next_call(folder):
    model = DECODER.build()
    with CheckpointWriter(folder, in_background=True) as writer:
        writer.save(1, model)
        writer.wait()
        with full_disk(1):
            writer.save(2, model)
            with pytest.raises(CheckpointError, match=r"step 2 .*File too large"):
                writer.save(3, model)
        assert names(folder) == ["checkpoint-1"]
        writer.save(3, model)
    assert names(folder) == ["checkpoint-1", "checkpoint-3"]
    with (
        full_disk(0),
        pytest.raises(CheckpointError, match="step 4 "),
        CheckpointWriter(folder, in_background=True) as writer,
    ):
        writer.save(4, model)


def what_is_saved_in_the_background_is_the_model_of_that_moment(folder):
    model, read = DECODER.build(), DECODER.build()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def break_off():
        with CheckpointWriter(folder, in_background=True) as writer:
            writer.save(1, model)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
            raise KeyError("mine")  # what was begun is finished

    with pytest.raises(KeyError, match="mine"):
        break_off()
    load_checkpoint(last_checkpoint(folder), read)
    for name, value in read.state_dict().items():
        assert torch.equal(value, before[name]), name


def the_newest_are_kept_and_rests_are_removed(folder):
    def litter():
        for name in ("checkpoint-1.partial", "checkpoint-9.partial", "checkpoint-my.partial"):
            (folder / name).mkdir(parents=True)
            (folder / name / "file").write_text("text")
        (folder / "checkpoint-notes.txt").write_text("text")

    in_one(litter)
    model = DECODER.build()
    for step in (5, 10, 15):
        save_checkpoint(folder, step, model, keep=2)
    others = ["checkpoint-my.partial", "checkpoint-notes.txt"]
    assert names(folder) == ["checkpoint-10", "checkpoint-15", *others]
    save_checkpoint(folder, 10, model, keep=1)  # a run that went back
    assert names(folder) == ["checkpoint-10", "checkpoint-15", *others]
    assert last_checkpoint(folder / "nothing") is None


def a_step_that_is_saved_again_takes_the_place_of_the_first(folder):
    model = DECODER.build()
    save_checkpoint(folder, 1, model, progress={"time": 1}, keep=1)
    save_checkpoint(folder, 1, model, progress={"time": 2}, keep=1)
    assert names(folder) == ["checkpoint-1"]
    assert load_checkpoint(folder / "checkpoint-1", model) == {"time": 2}
    # Killed when the first had made room, and the second had not taken it:
    in_one((folder / "checkpoint-1").rename, folder / "checkpoint-1.replaced")
    assert last_checkpoint(folder) == folder / "checkpoint-1.replaced"
    save_checkpoint(folder, 1, model, progress={"time": 3}, keep=1)
    assert names(folder) == ["checkpoint-1"]


def damage_is_seen_and_the_one_before_is_taken(folder):
    model = DECODER.build()
    for step in (1, 2):
        save_checkpoint(folder / "run", step, model, progress={"step": step})

    def truncate(path):
        os.truncate(path, path.stat().st_size - 1)

    def change(path):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    last = folder / "run" / "checkpoint-2"
    for name in ("__0_0.distcp", "__1_0.distcp", ".metadata", "checkpoint.json"):
        for harm in (truncate, change, Path.unlink):
            if name == "checkpoint.json" and harm is change:
                continue  # it may hit the progress, which is the user's
            in_one(shutil.rmtree, folder / "kept", True)
            in_one(shutil.copytree, last, folder / "kept")
            in_one(harm, last / name)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                assert last_checkpoint(folder / "run") == folder / "run" / "checkpoint-1"
            assert len(warned) == is_first()
            assert all(name in str(warning.message) for warning in warned)
            with pytest.raises(CheckpointError, match=name):
                load_checkpoint(last, model)
            in_one(shutil.rmtree, last)
            in_one((folder / "kept").rename, last)
    assert load_checkpoint(last_checkpoint(folder / "run"), model) == {"step": 2}


def a_parameter_that_had_no_gradient_has_no_state(folder):
    def make():
        model = torch.nn.ModuleList(torch.nn.Linear(3, 3, bias=False) for _ in range(2))
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(model, optimizer, both):
        sum(part(torch.ones(3)).sum() for part in model[: 1 + both]).backward()
        optimizer.step()
        optimizer.zero_grad()

    model, optimizer = make()
    step(model, optimizer, both=False)
    save_checkpoint(folder, 1, model, optimizer)
    read, its_optimizer = make()
    load_checkpoint(folder / "checkpoint-1", read, its_optimizer)
    step(model, optimizer, both=True)
    step(read, its_optimizer, both=True)
    torch.testing.assert_close(read.state_dict(), model.state_dict(), rtol=0, atol=0)


def another_model_is_refused_by_the_name_of_a_parameter(folder):
    save_checkpoint(folder, 1, DECODER.build())
    for fields, said in (
        ({"num_hidden_layers": 1}, "only the checkpoint has model.layers.1."),
        ({"num_hidden_layers": 3}, "only the model has model.layers.2."),
        ({"intermediate_size": 48}, "mlp"),
    ):
        with pytest.raises(CheckpointError, match=said):
            load_checkpoint(folder / "checkpoint-1", DECODER.build(**fields))


def a_folder_that_is_not_shared_is_refused(folder):
    own = folder / str(dist.get_rank())
    with pytest.raises(CheckpointError, match="of another process is not in this folder"):
        save_checkpoint(own, 1, DECODER.build())
    assert last_checkpoint(own) is None


def wrong_arguments_are_refused(folder):
    with pytest.raises(ValueError, match="keep is 0"):
        save_checkpoint(folder, 1, DECODER.build(), keep=0)
    with pytest.raises(ValueError, match="progress holds what JSON cannot"):
        save_checkpoint(folder, 1, DECODER.build(), progress={"order": {1, 2}})
    in_one((folder.parent / "file").write_text, "text")
    with pytest.raises(CheckpointError, match=r"Not a directory|File exists"):
        save_checkpoint(folder.parent / "file", 1, DECODER.build())
    with pytest.raises(CheckpointError, match=r"checkpoint.json is missing"):
        load_checkpoint(folder / "checkpoint-7", DECODER.build())


def a_folder_that_cannot_be_written_is_told_to_all(folder):
    with full_disk(0), pytest.raises(CheckpointError, match="the model was not saved"):
        save_folder(DECODER.build(), folder / "model")
    assert not names(folder / "model")


CASES = (
    a_full_disk_in_one_process_is_told_to_all,
    a_full_disk_in_the_background_is_told_at_the_next_call,
    what_is_saved_in_the_background_is_the_model_of_that_moment,
    the_newest_are_kept_and_rests_are_removed,
    a_step_that_is_saved_again_takes_the_place_of_the_first,
    damage_is_seen_and_the_one_before_is_taken,
    a_parameter_that_had_no_gradient_has_no_state,
    another_model_is_refused_by_the_name_of_a_parameter,
    a_folder_that_is_not_shared_is_refused,
    wrong_arguments_are_refused,
    a_folder_that_cannot_be_written_is_told_to_all,
)


def run_all(folder):
    for case in CASES:
        case(folder / case.__name__)
        if is_first():
            print(case.__name__, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    in_processes(2, run_all, Path(sys.argv[1]))
