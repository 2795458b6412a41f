"""A model trained by transformers' Trainer on a few rows, and its gradients."""

import torch
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
)

from support.families import SEQ2SEQ, random_rows

ROWS = random_rows([9, 3, 7, 5, 8, 2, 6, 4])
TARGETS = random_rows([4, 6, 3, 8, 2, 7, 5, 9], seed=1)


def gradients(model, **batch):
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    return loss, {name: p.grad.clone() for name, p in model.named_parameters()}


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = WordLevel({str(i): i for i in range(101)}, unk_token="0")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), pad_token="0", eos_token="2")


def rows_of(family):
    return family.training_rows(ROWS, TARGETS)


def train(family, model, tmp_path, collator=None, rows=None, **options):
    """One optimizer step over all rows; the loss that Trainer logged."""
    options = {
        "output_dir": tmp_path,
        "max_steps": 1,
        "per_device_train_batch_size": 8,
        "learning_rate": 0.1,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "constant",
        "report_to": "none",
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        **options,
    }
    seq2seq = family is SEQ2SEQ
    trainer = (Seq2SeqTrainer if seq2seq else Trainer)(
        model=model,
        args=(Seq2SeqTrainingArguments if seq2seq else TrainingArguments)(**options),
        train_dataset=Rows(rows or rows_of(family)),
        data_collator=collator or DataCollatorForSeq2Seq(tokenizer(), model=model),
    )
    trainer.train()
    return trainer.state.log_history[0]["loss"]
