"""The schedule is the paper's, and what a killed run left behind is not taken for a checkpoint."""

import pytest
import torch
from families import DECODER, random_rows
from transformers import Trainer, TrainingArguments

from hf_tformer import last_complete_checkpoint, noam_learning_rate, paper_training_arguments


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


@pytest.mark.parametrize(
    "name", ["trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt"]
)
def test_a_checkpoint_with_half_a_file_is_passed_over(run, name):
    path = run / "checkpoint-2" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")


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
    parts[-1].write_bytes(parts[-1].read_bytes()[:-8])
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")
