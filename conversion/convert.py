"""From a folder of another format to one of ours and back, whole or not at all."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch

from . import proof
from .checkpoints import appearing, write_checkpoint
from .models import translate
from .registry import detect, exportable, refuse_others_family
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
from .user_rules import read_rules

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
    assumed: dict[str, object] = field(default_factory=dict)  # defaults for what nobody said


def import_checkpoint(src, dst, format=None, dtype=None, verify=True, *, settings=None, rules=None):
    """Makes the folder `dst` of ours from `src`, a folder or file of another format.

    `settings` say what a plain file does not, by their names there: {"n_heads": 12}. `rules` is a
    file that describes a layout of the user's own.
    """
    if rules and (format or settings):
        raise ConversionError(
            "rules say all about a file: give no format and no settings with them"
        )
    form = read_rules(rules, verify) if rules else detect(src, format)
    return transfer(src, dst, form, True, as_dtype(dtype), verify, settings)


def export_checkpoint(src, dst, to, dtype=None, verify=True):
    """Makes the folder `dst` of the format `to` from the folder `src` of ours."""
    form = exportable(to)
    refuse_others_family(src, form)
    return transfer(src, dst, form, False, as_dtype(dtype), verify)


def as_dtype(dtype):
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConversionError(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def transfer(src, dst, form, to_ours, dtype, verify, settings=None):
    sides = (form.theirs, form.our_classes) if to_ours else (form.our_classes, form.theirs)
    source_side, target_side = sides
    config = source_side.load_config(src, settings)
    target_config = translate(config, form, to_ours, dtype)
    target = target_side.build(target_config)
    source = source_side.build(config)
    rules = form.table(config if to_ours else target_config)
    tensors, count = converted_tensors(
        source_side.checkpoint(src), source, target, form, to_ours, rules
    )
    with appearing(dst) as folder:
        write_checkpoint(folder, rounded(tensors, dtype))
        target_side.save_description(target, folder)
        bring_along(src, folder, source if hasattr(source, "generation_config") else target)
        models = (source_side, src, settings), (target_side, folder, None)
        difference = proof.compare(*models, dtype) if verify else None
    return Conversion(Path(dst), form.name, count, difference, getattr(config, "assumed", {}))


def converted_tensors(checkpoint, source, target, form, to_ours, rules):
    """The tensors of the target, one after the other, and how many there will be.

    Names and shapes of the whole file are checked before the first tensor is read.
    """
    source_side, target_side = Side.of(source), Side.of(target)
    steps = plan(rules, (target_side if to_ours else source_side).shapes)
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
    if not to_ours and form.theirs is form:
        tensors = under_all_names(tensors, target_side)
    return tensors, sum(len(step.targets(to_ours)) for step in steps)


def under_all_names(tensors, side):
    """Plain PyTorch looks for a tied tensor under each of its names."""
    for name, tensor in tensors:
        yield name, tensor
        for alias, first in side.aliases.items():
            if first == name:
                yield alias, tensor.clone()


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
