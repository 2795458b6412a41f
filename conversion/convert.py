"""From a folder of another format to one of ours and back, whole or not at all."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from . import proof
from .checkpoints import appearing, open_checkpoint, write_checkpoint
from .models import build_without_weights, load_config, save_description, translate
from .registry import detect, named, refuse_others_family
from .rules import (
    ConversionError,
    Side,
    check_shape,
    check_targets,
    convert,
    locate,
    plan,
    refuse_names,
)

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# What a tokenizer is made of, by the names that transformers looks for.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "source.spm",
    "target.spm",
    "target_vocab.json",
)


@dataclass(frozen=True)
class Conversion:
    """What was done: where it lies, how many tensors, and how far the logits are apart."""

    folder: Path
    format: str
    tensors: int
    difference: float | None  # None: not verified


def import_checkpoint(src, dst, format=None, dtype=None, verify=True):
    """Makes the folder `dst` of ours from the folder `src` of another format."""
    return transfer(src, dst, detect(src, format), True, as_dtype(dtype), verify)


def export_checkpoint(src, dst, to, dtype=None, verify=True):
    """Makes the folder `dst` of the format `to` from the folder `src` of ours."""
    form = named(to)
    refuse_others_family(src, form)
    return transfer(src, dst, form, False, as_dtype(dtype), verify)


def as_dtype(dtype):
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConversionError(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def transfer(src, dst, form, to_ours, dtype, verify):
    config = load_config(src, form, ours=not to_ours)
    target = build_without_weights(translate(config, form, to_ours, dtype), form, ours=to_ours)
    source = build_without_weights(config, form, ours=not to_ours)
    tensors, count = converted_tensors(open_checkpoint(src), source, target, form, to_ours)
    with appearing(dst) as folder:
        write_checkpoint(folder, rounded(tensors, dtype))
        save_description(target, folder)
        bring_along(src, folder, source)
        difference = proof.verify(src, folder, dtype) if verify else None
    return Conversion(Path(dst), form.name, count, difference)


def converted_tensors(checkpoint, source, target, form, to_ours):
    """The tensors of the target, one after the other, and how many there will be.

    Names and shapes of the whole file are checked before the first tensor is read.
    """
    source_side, target_side = Side.of(source), Side.of(target)
    steps = plan(form.rules, (target_side if to_ours else source_side).shapes)
    source_ignored, target_ignored = (form.ignored, {}) if to_ours else ({}, form.ignored)
    used = {name for step in steps for name in step.sources(to_ours)}
    places = locate(checkpoint, source_side, source_ignored, used)
    refuse_names("tensors are missing", used - places.keys() - set(form.zero_if_absent))
    for name, place in places.items():
        check_shape(name, checkpoint.shape(place), source_side)
    check_targets(steps, target_side, target_ignored, to_ours)

    def read(name):
        if name in places:
            return checkpoint.read(places[name])
        return torch.zeros(source_side.shapes[name])

    ours = (target if to_ours else source).config
    tensors = fitting(convert(steps, read, ours, to_ours), target_side)
    return tensors, sum(len(step.targets(to_ours)) for step in steps)


def fitting(tensors, side):
    """The tensors themselves, as long as they suit the model that is to read them."""
    for name, tensor in tensors:
        check_shape(name, tensor.shape, side)
        if not tensor.is_floating_point():
            raise ConversionError(
                f"{name} holds {tensor.dtype}, as quantised weights do: "
                "convert the model they were made from"
            )
        yield name, tensor


def rounded(tensors, dtype):
    for name, tensor in tensors:
        yield name, tensor if dtype is None else tensor.to(dtype)


def bring_along(src, folder, source):
    """The tokenizer, and the habits of generation, which old folders keep in config.json."""
    for name in TOKENIZER_FILES:
        if (Path(src) / name).is_file():
            shutil.copyfile(Path(src) / name, folder / name)
    habits = Path(src) / "generation_config.json"
    if habits.is_file():
        shutil.copyfile(habits, folder / habits.name)
    else:
        source.generation_config.save_pretrained(folder)
