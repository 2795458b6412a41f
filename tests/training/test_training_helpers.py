"""The schedule is the paper's, and what a killed run left behind is not taken for a checkpoint."""

import os
import shutil

import pytest
import torch
from transformers import Trainer, TrainingArguments

from hf_tformer import last_complete_checkpoint, noam_learning_rate, paper_training_arguments
from support.damage import Trap, flip, largest_record
from support.families import DECODER, random_rows


def rate_of_the_paper(step, hidden_size, warmup_steps):
    return hidden_size**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def trainer_of(folder, **options):
    rows = [{"input_ids": row, "labels": row} for row in random_rows([5] * 4)]
    options = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, **options}
    arguments = TrainingArguments(folder, max_steps=2, save_steps=1, **options)
    return Trainer(model=DECODER.build(), args=arguments, train_dataset=rows)


@pytest.mark.parametrize(("hidden_size", "warmup_steps"), [(512, 4000), (96, 1), (130, 17)])
def test_the_learning_rate_is_the_papers_at_every_step(tmp_path, hidden_size, warmup_steps):
    trainer = trainer_of(tmp_path, **paper_training_arguments(hidden_size, warmup_steps))
    total = 3 * warmup_steps
    scheduler = trainer.create_scheduler(total, trainer.create_optimizer())
    assert scheduler.get_last_lr()[0] == 0
    for step in range(1, total + 1):
        trainer.optimizer.step()
        scheduler.step()
        expected = rate_of_the_paper(step, hidden_size, warmup_steps)
        assert scheduler.get_last_lr()[0] == pytest.approx(expected, rel=1e-9)


def test_the_optimizer_is_the_papers_adam(tmp_path):
    optimizer = trainer_of(tmp_path, **paper_training_arguments(48)).create_optimizer()
    for group in optimizer.param_groups:
        assert group["betas"] == (0.9, 0.98)
        assert group["eps"] == 1e-9
        assert group["weight_decay"] == 0


@pytest.mark.parametrize("sizes", [(0, 4000), (512, 0), (512, 0.1)])
def test_a_schedule_without_size_or_warm_up_is_refused(sizes):
    with pytest.raises(ValueError, match="needs both to be 1 or more"):
        noam_learning_rate(*sizes)


@pytest.fixture
def run(tmp_path):
    trainer_of(tmp_path).train()
    return tmp_path


def test_the_last_checkpoint_is_the_one_with_the_highest_number(run):
    (run / "checkpoint-2").rename(run / "checkpoint-10")
    assert last_complete_checkpoint(run) == str(run / "checkpoint-10")


DAMAGE = {
    "half": lambda content: content[: len(content) // 2],
    "last byte": lambda content: content.rstrip()[:-1],
    "empty": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
}
JSON = ("trainer_state.json", "config.json", "generation_config.json")
PICKLES = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that is never written to."""
    folder = tmp_path_factory.mktemp("trained")
    trainer_of(folder).train()
    return folder


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", [*JSON, *PICKLES, "model.safetensors"])
def test_a_checkpoint_with_a_damaged_file_is_passed_over(trained, tmp_path, name, how):
    run = shutil.copytree(trained, tmp_path / "run")
    path = run / "checkpoint-2" / name
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")


@pytest.mark.parametrize("name", PICKLES)
def test_one_changed_bit_of_a_pickle_is_found(trained, tmp_path, name):
    run = shutil.copytree(trained, tmp_path / "run")
    path = run / "checkpoint-2" / name
    flip(path, largest_record(path)[1] + 5)  # between records is padding, which nobody reads
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")


@pytest.mark.parametrize("name", [*JSON[:2], *PICKLES[:3], "model.safetensors"])
def test_a_checkpoint_that_lacks_a_file_is_passed_over(trained, tmp_path, name):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "checkpoint-2" / name).unlink()
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")


@pytest.mark.parametrize("name", ["trainer_state.json", "optimizer.pt", "model.safetensors"])
def test_a_checkpoint_with_a_pipe_is_passed_over_without_waiting(trained, tmp_path, name):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "checkpoint-2" / name).unlink()
    os.mkfifo(run / "checkpoint-2" / name)
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")


def test_nothing_of_a_checkpoint_is_run(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    torch.save(Trap(tmp_path / "sprung"), run / "checkpoint-2" / "optimizer.pt")
    last_complete_checkpoint(run)
    assert not (tmp_path / "sprung").exists()


def test_random_numbers_of_several_processes_belong_together(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    one = run / "checkpoint-2" / "rng_state.pth"
    for rank in (0, 1, 2):
        shutil.copyfile(one, one.with_name(f"rng_state_{rank}.pth"))
    one.unlink()
    assert last_complete_checkpoint(run) == str(run / "checkpoint-2")
    one.with_name("rng_state_1.pth").unlink()
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")


def test_a_checkpoint_of_the_model_only_is_complete(tmp_path):
    trainer_of(tmp_path, save_only_model=True).train()
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")


def test_adapters_and_plain_modules_are_complete_checkpoints(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    newest = run / "checkpoint-2"
    (newest / "model.safetensors").rename(newest / "adapter_model.safetensors")
    (newest / "config.json").rename(newest / "adapter_config.json")
    assert last_complete_checkpoint(run) == str(newest)
    for path in (newest / "adapter_config.json", newest / "generation_config.json"):
        path.unlink()
    for path in newest.glob("*.py"):
        path.unlink()
    assert last_complete_checkpoint(run) == str(newest)


def test_what_fsdp_writes_is_not_judged(trained, tmp_path):
    """Weights and optimizer lie in folders of their own."""
    run = shutil.copytree(trained, tmp_path / "run")
    newest = run / "checkpoint-2"
    for name in ("model.safetensors", "optimizer.pt"):
        (newest / name).unlink()
    for name in ("pytorch_model_fsdp_0", "optimizer_0"):
        (newest / name).mkdir()
    assert last_complete_checkpoint(run) == str(newest)


def test_a_checkpoint_without_its_last_file_is_passed_over(run):
    (run / "checkpoint-2" / "trainer_state.json").unlink()
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")


def test_a_folder_without_checkpoints_has_none(tmp_path):
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "checkpoint-3").write_text("a file")
    assert last_complete_checkpoint(tmp_path) is None
    assert last_complete_checkpoint(tmp_path / "nowhere") is None


def test_a_sharded_checkpoint_is_complete_when_every_part_is(run):
    torch.manual_seed(1)
    DECODER.build().save_pretrained(run / "checkpoint-2", max_shard_size="20KB")
    parts = sorted((run / "checkpoint-2").glob("model-*.safetensors"))
    assert len(parts) > 1
    assert last_complete_checkpoint(run) == str(run / "checkpoint-2")
    whole = parts[-1].read_bytes()
    parts[-1].write_bytes(whole[:-8])
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")
    parts[-1].unlink()
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")
