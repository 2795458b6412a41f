"""From a folder of another format to one of ours and back, whole or not at all."""

from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from tqdm.auto import tqdm

from . import proof
from .card import write_card
from .checkpoints import open_checkpoint, write_checkpoint
from .companions import Companions
from .destination import appearing
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


@dataclass(frozen=True)
class Conversion:
    """What was done: where it lies, how many tensors, and how far the logits are apart.

    `disagreements` holds a sentence for each special id that configuration, generation and
    tokenizer do not agree on.
    """

    folder: Path
    format: str
    tensors: int
    difference: float | None  # None: not verified
    disagreements: tuple[str, ...] = ()


def import_checkpoint(
    src, dst, format=None, dtype=None, verify=True, tokenizer=None, progress=False
):
    """Makes the folder `dst` of ours from the folder `src` of another format.

    `tokenizer` (a folder, a tokenizer.json, a repository on the Hub) takes the place of the one in
    `src`. `progress` shows a bar where stderr is a terminal.
    """
    form = detect(src, format)
    return transfer(src, dst, form, True, as_dtype(dtype), verify, tokenizer, progress)


def export_checkpoint(src, dst, to, dtype=None, verify=True, tokenizer=None, progress=False):
    """Makes the folder `dst` of the format `to` from the folder `src` of ours."""
    form = named(to)
    refuse_others_family(src, form)
    return transfer(src, dst, form, False, as_dtype(dtype), verify, tokenizer, progress)


def as_dtype(dtype):
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConversionError(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def transfer(src, dst, form, to_ours, dtype, verify, tokenizer, progress):
    config = load_config(src, form, ours=not to_ours)
    target = build_without_weights(translate(config, form, to_ours, dtype), form, ours=to_ours)
    source = build_without_weights(config, form, ours=not to_ours)
    companions = Companions(src, source, tokenizer)
    tensors, count, size = converted_tensors(
        open_checkpoint(src), source, target, form, to_ours, dtype
    )
    with appearing(dst, src, size) as folder:
        write_checkpoint(folder, counted(tensors, count, progress))
        save_description(target, folder)
        disagreements = tuple(companions.save(folder))
        difference = proof.verify(src, folder, dtype) if verify else None
        done = Conversion(Path(dst), form.name, count, difference, disagreements)
        write_card(folder, form, to_ours, done, src)
    return done


def converted_tensors(checkpoint, source, target, form, to_ours, dtype):
    """The tensors of the target, one after the other; how many there are, and of how many bytes.

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
    produced = [target_side.shapes[name] for step in steps for name in step.targets(to_ours)]
    size = (
        sum(map(checkpoint.nbytes, places.values()))
        if dtype is None
        else sum(map(prod, produced)) * dtype.itemsize
    )
    return rounded(tensors, dtype), len(produced), size


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
        del tensor  # before the next one is read


def rounded(tensors, dtype):
    for name, tensor in tensors:
        yield name, tensor if dtype is None else tensor.to(dtype)
        del tensor  # before the next one is read


def counted(tensors, total, progress):
    """The tensors behind a bar, where a terminal looks."""
    with tqdm(total=total, unit=" tensors", disable=None if progress else True) as bar:
        for name, tensor in tensors:
            yield name, tensor
            del tensor  # before the next one is read; tqdm would keep it
            bar.update()
