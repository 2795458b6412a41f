"""From a folder of another format to one of ours and back, whole or not at all."""

from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import torch
from tqdm.auto import tqdm

from . import proof
from .card import write_card
from .checkpoints import write_checkpoint
from .companions import Companions
from .destination import appearing
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
    assumed: dict[str, object] = field(default_factory=dict)  # defaults for what nobody said


def import_checkpoint(
    src,
    dst,
    format=None,
    dtype=None,
    verify=True,
    tokenizer=None,
    progress=False,
    *,
    settings=None,
    rules=None,
):
    """Makes the folder `dst` of ours from `src`, a folder or file of another format.

    `tokenizer` (a folder, a tokenizer.json, a repository on the Hub) takes the place of the one in
    `src`. `progress` shows a bar where stderr is a terminal. `settings` say what a plain file does
    not, by their names there: {"n_heads": 12}. `rules` is a file that describes a layout of the
    user's own.
    """
    if rules and (format or settings):
        raise ConversionError(
            "rules say all about a file: give no format and no settings with them"
        )
    form = read_rules(rules, verify) if rules else detect(src, format)
    return transfer(src, dst, form, True, as_dtype(dtype), verify, tokenizer, progress, settings)


def export_checkpoint(src, dst, to, dtype=None, verify=True, tokenizer=None, progress=False):
    """Makes the folder `dst` of the format `to` from the folder `src` of ours."""
    form = exportable(to)
    refuse_others_family(src, form)
    return transfer(src, dst, form, False, as_dtype(dtype), verify, tokenizer, progress)


def as_dtype(dtype):
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConversionError(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def transfer(src, dst, form, to_ours, dtype, verify, tokenizer, progress, settings=None):
    sides = (form.theirs, form.our_classes) if to_ours else (form.our_classes, form.theirs)
    source_side, target_side = sides
    config = source_side.load_config(src, settings)
    target_config = translate(config, form, to_ours, dtype)
    target = target_side.build(target_config)
    source = source_side.build(config)
    # A plain module says nothing about ids and generation; what was made of its settings does.
    companions = Companions(
        src, source if hasattr(source, "generation_config") else target, tokenizer
    )
    rules = form.table(config if to_ours else target_config)
    tensors, count, size = converted_tensors(
        source_side.checkpoint(src), source, target, form, to_ours, dtype, rules
    )
    with appearing(dst, src, size) as folder:
        write_checkpoint(folder, counted(tensors, count, progress))
        target_side.save_description(target, folder)
        disagreements = tuple(companions.save(folder))
        models = (source_side, src, settings), (target_side, folder, None)
        difference = proof.compare(*models, dtype) if verify else None
        assumed = getattr(config, "assumed", {})
        done = Conversion(Path(dst), form.name, count, difference, disagreements, assumed)
        write_card(folder, form, to_ours, done, src)
    return done


def converted_tensors(checkpoint, source, target, form, to_ours, dtype, rules):
    """The tensors of the target, one after the other; how many there are, and of how many bytes.

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
        return torch.zeros(source_side.shapes[name], dtype=source.config.dtype)

    ours = (target if to_ours else source).config
    tensors = fitting(convert(steps, read, ours, to_ours), target_side)
    if not to_ours and form.theirs is form:
        tensors = under_all_names(tensors, target_side)
    produced = [target_side.shapes[name] for step in steps for name in step.targets(to_ours)]
    size = (
        sum(map(checkpoint.nbytes, places.values()))
        if dtype is None
        else sum(map(prod, produced)) * dtype.itemsize
    )
    return rounded(tensors, dtype), len(produced), size


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
