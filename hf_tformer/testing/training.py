"""Promises about training."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, Trainer, TrainingArguments

from ..training import enable_activation_checkpointing
from .families import IGNORED, Batch, Examples, Family, random_rows
from .promise import CLOSE, Promises, promise

SOURCES = random_rows([9, 3, 7, 5, 8, 2, 6, 4])
TARGETS = random_rows([4, 6, 3, 8, 2, 7, 5, 9], seed=1)


class TrainingPromises(Promises):
    @promise
    def test_loss(self) -> None:
        """The loss is the mean over the labels that count, and every parameter gets a gradient.

        Labels of -100 do not count. A parameter without a gradient is not used in forward, or its
        influence cancels out.
        """
        model, batch = self.build(), self.family.training_batch(SOURCES, TARGETS)
        output = model(**batch)
        expected = plain_loss(self.family, output.logits, batch["labels"])
        torch.testing.assert_close(output.loss, expected, **CLOSE)
        output.loss.backward()
        silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        assert not silent, f"no gradient reaches {silent}"

    @promise
    def test_accumulation(self) -> None:
        """Parts of a batch give the gradients of the whole batch, given its number of labels.

        Take **kwargs in forward, and pass num_items_in_batch to the loss function.
        """
        model = self.build().double()
        batch = self.family.training_batch(SOURCES, TARGETS)
        _, labels = self.family.shifted(batch["labels"][..., None], batch["labels"])
        whole = gradients(model, batch)
        model.zero_grad()
        for i in range(0, len(SOURCES), 2):
            part = {name: tensor[i : i + 2] for name, tensor in batch.items()}
            model(**part, num_items_in_batch=(labels != IGNORED).sum()).loss.backward()
        torch.testing.assert_close(copied_gradients(model), whole, rtol=1e-9, atol=1e-11)

    @promise
    def test_checkpointing(self) -> None:
        """Activation checkpointing, which computes layers twice, leaves gradients the same.

        Derive layers from those of the family, and draw no random numbers of your own in them.
        """
        model = self.build().train()
        batch = self.family.training_batch(SOURCES, TARGETS)
        plain = gradients(model, batch)
        enable_activation_checkpointing(model)
        torch.testing.assert_close(gradients(model, batch), plain, **CLOSE)

    @promise
    def test_compile(self) -> None:
        """torch.compile captures a training step as one graph.

        Read no value of a tensor in forward: no .item(), no `if` on a tensor.
        """
        torch._dynamo.reset()
        model = self.family.for_one_graph(self.build())
        batch = self.family.training_batch(SOURCES, TARGETS)
        expected = model(**batch).loss
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(**batch).loss, expected, **CLOSE)

    @promise
    def test_smoothing(self, tmp_path: Path) -> None:
        """Trainer applies label smoothing to the same labels as the loss.

        For a causal language model Trainer finds the class by name: put it into
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.
        """
        model, batch = self.build(), self.family.training_batch(SOURCES, TARGETS)
        expected = plain_loss(self.family, model(**batch).logits, batch["labels"], smoothing=0.1)
        log = self.trainer(tmp_path, model, max_steps=1, label_smoothing_factor=0.1)
        assert log[0]["loss"] == pytest.approx(expected.item(), rel=1e-4)

    @promise
    def test_trainer(self, tmp_path: Path) -> None:
        """Trainer trains the model, and resumes from a checkpoint as if never interrupted.

        Keep the state of the model in its parameters: a checkpoint holds nothing else of it.
        """
        model = self.build()
        whole = self.trainer(tmp_path, model, max_steps=4, save_steps=2)
        place = tmp_path / "checkpoint-2"
        again = self.model_class.from_pretrained(place)
        resumed = self.trainer(tmp_path / "again", again, resume=place, max_steps=4)
        losses = [[entry["loss"] for entry in log if "loss" in entry] for log in (whole, resumed)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        torch.testing.assert_close(again.state_dict(), model.state_dict(), **CLOSE)

    @promise
    def test_peft(self, tmp_path: Path) -> None:
        """PEFT finds the projections, trains adapters on them, and loads them again.

        Let projections be plain nn.Linear modules that forward calls.
        """
        peft = pytest.importorskip("peft")
        settings = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        batch = self.family.training_batch(SOURCES, TARGETS)
        model = peft.get_peft_model(self.build(), settings)
        loss = model(**batch).loss
        loss.backward()
        adapters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        assert adapters
        assert all(p.grad is not None and p.grad.any() for p in adapters.values())
        model.save_pretrained(tmp_path)
        opened = peft.PeftModel.from_pretrained(self.build(), tmp_path)
        torch.testing.assert_close(opened(**batch).loss, loss, **CLOSE)

    def trainer(
        self, folder: Path, model: PreTrainedModel, resume: Path | None = None, **options: object
    ) -> list[dict[str, float]]:
        """Train some steps on all sequences at once, and return Trainer's log."""
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=len(SOURCES),
            learning_rate=0.01,
            lr_scheduler_type="constant",
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            **options,
        )

        def collate(examples: Examples) -> Batch:
            batch = self.family.collate(examples)
            if model.config.is_encoder_decoder:  # for smoothing, Trainer removes the labels
                labels = batch["labels"]
                batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
            return batch

        rows = self.family.training_rows(SOURCES, TARGETS)
        trainer = Trainer(model, arguments, data_collator=collate, train_dataset=rows)
        trainer.train(resume_from_checkpoint=resume)
        return trainer.state.log_history


def plain_loss(
    family: Family, logits: torch.Tensor, labels: torch.Tensor, smoothing: float = 0.0
) -> torch.Tensor:
    logits, labels = family.shifted(logits, labels)
    flat = logits.flatten(0, 1), labels.flatten()
    return cross_entropy(*flat, ignore_index=IGNORED, label_smoothing=smoothing)


def gradients(model: PreTrainedModel, batch: Batch) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(**batch).loss.backward()
    return copied_gradients(model)


def copied_gradients(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
