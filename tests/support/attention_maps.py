"""Inputs and saved models whose attention is shown."""

import torch
from tokenizers.pre_tokenizers import WhitespaceSplit

from support.families import random_rows
from support.training import tokenizer

IDS = torch.tensor(random_rows([6]))
TARGET = torch.tensor([[1, *random_rows([4], seed=1)[0]]])


def inputs_of(family):
    return {"input_ids": IDS} | family.target(TARGET)


def folder_of(family, tmp_path, monkeypatch):
    """A saved model and its tokenizer, in the folder where the command is called."""
    monkeypatch.chdir(tmp_path)
    family.build().save_pretrained("model")
    words = tokenizer()
    words.backend_tokenizer.pre_tokenizer = WhitespaceSplit()
    words.save_pretrained("model")
    return "model"
