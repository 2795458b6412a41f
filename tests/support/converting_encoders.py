"""Encoders of transformers, saved to be converted."""

from safetensors.torch import load_file

from support.parity import randomise
from support.parity_encoder import CASES


def save_theirs(name, folder):
    one = CASES[name]
    model = randomise(one.build_one(one.their_classes, one.theirs)).eval()
    model.save_pretrained(folder)
    return model


def read_all(folder):
    return load_file(folder / "model.safetensors")
