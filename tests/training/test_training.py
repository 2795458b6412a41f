"""Training under the wrappers that people use gives the gradients of the plain loop."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoConfig,
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

import hf_tformer
from support.families import DECODER, SEQ2SEQ, WRITERS, decoder_first, random_rows, until_end
from support.training import ROWS, TARGETS, Rows, gradients, rows_of, tokenizer, train


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_gradient_checkpointing_changes_nothing_but_memory(family, reentrant):
    model = family.build().train()
    batch = family.training_batch(ROWS, TARGETS)
    plain = gradients(model, **batch, use_cache=True)
    calls = []
    model.get_decoder().layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if reentrant:
        model.enable_input_require_grads()
    checkpointed = gradients(model, **batch, use_cache=True)
    assert len(calls) == 2  # once forward, once more on the way back
    torch.testing.assert_close(checkpointed, plain)


def test_gradient_checkpointing_keeps_fewer_activations(family):
    model = family.build(hidden_size=60).train()
    batch = family.training_batch(random_rows([60] * 4), random_rows([60] * 4))
    kept = []
    for enable in (False, True):
        if enable:
            model.gradient_checkpointing_enable()
        total = 0

        def count(tensor):
            nonlocal total
            total += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            model(**batch)
        kept.append(total)
    assert kept[1] < 0.6 * kept[0]


def test_trainer_takes_the_same_step_however_the_batch_is_accumulated(family, tmp_path):
    """A loss that ignored the token count of the whole batch would be four times too large."""
    losses, weights = [], []
    for size, parts in ((8, 1), (2, 4)):
        model = family.build()
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": parts}
        losses.append(train(family, model, tmp_path, **options))
        weights.append(model.state_dict())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(*weights)


@pytest.mark.parametrize("labels", [1, [1, 0, 1]], ids=["one label", "several labels"])
def test_a_classifier_takes_the_same_step_however_the_batch_is_accumulated(tmp_path, labels):
    """Its loss does not know the count of the whole batch, so Trainer has to divide it."""
    kind = "single_label_classification" if labels == 1 else "multi_label_classification"
    rows = [{"input_ids": row[:2], "labels": labels} for row in ROWS]
    if labels != 1:
        rows = [{**row, "labels": [float(x) for x in labels]} for row in rows]
    losses = []
    for size, parts in ((8, 1), (2, 4)):
        model_class = hf_tformer.TformerDecoderForSequenceClassification
        model = DECODER.build(model_class=model_class, num_labels=3, problem_type=kind)
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": parts}
        losses.append(train(DECODER, model, tmp_path, default_data_collator, rows=rows, **options))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_trainers_label_smoothing_is_the_shifted_one(family, tmp_path):
    """Trainer shifts labels only for class names it knows; others would learn to repeat their
    input."""
    model = family.build()
    batch = family.training_batch(ROWS, TARGETS)
    logits, labels = family.shifted(model(**batch).logits, batch["labels"])
    expected = cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=0.1
    )
    loss = train(family, model, tmp_path, label_smoothing_factor=0.1)
    assert loss == pytest.approx(expected.item(), rel=1e-4)


@decoder_first
def test_smoothing_in_the_configuration_trains_like_trainers(family, tmp_path):
    inside = train(family, family.build(label_smoothing=0.1), tmp_path)
    outside = train(family, family.build(), tmp_path, label_smoothing_factor=0.1)
    assert inside == pytest.approx(outside, rel=1e-4)


def test_a_packed_batch_has_the_loss_of_its_documents(tmp_path, backend):
    """DataCollatorWithFlattening joins all rows into one; positions restart where a row begins."""
    model = DECODER.build(backend)
    separate = train(DECODER, DECODER.build(), tmp_path)
    rows = [{"input_ids": row} for row in ROWS]
    packed = train(DECODER, model, tmp_path, collator=DataCollatorWithFlattening(), rows=rows)
    assert packed == pytest.approx(separate, rel=1e-4)


def test_a_checkpoint_of_trainer_holds_everything_a_reader_needs(family, tmp_path):
    words = tokenizer()
    options = {"output_dir": tmp_path, "max_steps": 1, "save_steps": 1, "use_cpu": True}
    trainer = Trainer(
        model=family.build(),
        args=TrainingArguments(**options, report_to="none", disable_tqdm=True),
        train_dataset=Rows(rows_of(family)),
        data_collator=DataCollatorForSeq2Seq(words),
        processing_class=words,
    )
    trainer.train()
    folder = tmp_path / "checkpoint-1"
    config = AutoConfig.from_pretrained(folder)
    needed = {reference.split(".")[0] + ".py" for reference in config.auto_map.values()}
    needed |= {"config.json", "model.safetensors"}
    needed |= {"generation_config.json"} if family in WRITERS else set()
    needed |= {"tokenizer.json", "tokenizer_config.json", "attention.py", "positions.py"}
    assert needed <= {path.name for path in folder.iterdir()}


def test_seq2seq_trainer_evaluates_by_generating(tmp_path):
    model = SEQ2SEQ.build()
    arguments = Seq2SeqTrainingArguments(
        output_dir=tmp_path,
        predict_with_generate=True,
        generation_max_length=8,
        generation_num_beams=2,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    seen = []
    trainer = Seq2SeqTrainer(
        model=model,
        args=arguments,
        eval_dataset=Rows(rows_of(SEQ2SEQ)),
        data_collator=DataCollatorForSeq2Seq(tokenizer(), model=model),
        compute_metrics=lambda result: seen.append(result.predictions) or {"rows": len(seen[0])},
    )
    assert trainer.evaluate()["eval_rows"] == 8
    written = SEQ2SEQ.generate(model, ROWS, max_length=8, num_beams=2)
    assert [until_end(row[1:]) for row in seen[0][:, :8].tolist()] == written
    assert not seen[0][:, 8:].any()  # padding


def test_the_default_model_learns_a_task_in_a_few_steps(family):
    """Repeating a token: the whole of training, from a fresh initialisation."""
    model = family.model_class(family.config(dropout=0.0)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(120):
        ids = torch.randint(3, 30, (16, 1)).repeat(1, 6)
        loss = model(input_ids=ids, labels=ids).loss
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.5 * losses[0]
