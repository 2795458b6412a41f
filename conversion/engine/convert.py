"""From a folder of another format to one of ours and back, whole or not at all."""

import os
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

import torch
from torch import nn
from tqdm.auto import tqdm

from hf_tformer.file_integrity import not_a_number

from . import proof
from .card import write_card
from .checkpoints import Checkpoint, Tensors, write_checkpoint
from .companions import Companions
from .conversion import Conversion, Request
from .destination import appearing
from .errors import ConversionError
from .registry import detect, refuse_unreadable
from .rules import (
    Rule,
    Side,
    check_shape,
    check_targets,
    convert,
    is_ignored,
    locate,
    plan,
    refuse_names,
)
from .transforms import sinusoids
from .translation import translate
from .user_rules import read_rules

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def import_checkpoint(
    src: str | os.PathLike,
    dst: str | os.PathLike,
    format: str | None = None,
    dtype: str | torch.dtype | None = None,
    verify: bool = True,
    tokenizer: str | os.PathLike | None = None,
    progress: bool = False,
    *,
    settings: dict[str, object] | None = None,
    rules: str | os.PathLike | None = None,
) -> Conversion:
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
    refuse_unreadable(src)
    form = read_rules(rules, verify) if rules else detect(src, format)
    return transfer(
        Request(
            src,
            dst,
            form,
            direction="import",
            dtype=as_dtype(dtype),
            verify=verify,
            tokenizer=tokenizer,
            progress=progress,
            settings=settings,
        )
    )


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConversionError(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def transfer(request: Request) -> Conversion:
    source_side, target_side = request.source_side, request.target_side
    config = source_side.load_config(request.src, request.settings)
    target_config = translate(config, request.form, request.to_ours, request.dtype)
    source, target = source_side.build(config), target_side.build(target_config)
    # A plain module says nothing about ids and generation; what was made of its settings does.
    described = source if hasattr(source, "generation_config") else target
    companions = Companions(request.src, described, request.tokenizer)
    rules = request.form.table(config if request.to_ours else target_config)
    # Nothing here keeps the checkpoint: its tensors must be gone when the logits are compared.
    checkpoint = source_side.checkpoint(request.src)
    told = tuple(left_out(request, checkpoint, target))
    tensors, count, size = converted_tensors(request, rules, checkpoint, source, target)
    del checkpoint
    with appearing(request.dst, request.src, size) as folder:
        write_checkpoint(folder, counted(tensors, count, request.progress))
        target_side.save_description(target, folder)
        disagreements = tuple(companions.save(folder))
        done = Conversion(
            Path(request.dst),
            request.form.name,
            count,
            logits_difference(request, folder),
            disagreements,
            getattr(config, "assumed", {}),
            told,
            getattr(target_side, "answers", "logits"),
        )
        write_card(folder, request.form, request.to_ours, done, request.src)
    return done


def left_out(request: Request, checkpoint: Checkpoint, target: nn.Module) -> Iterator[str]:
    """A sentence for each part of theirs that has no place in ours."""
    names = checkpoint.names() if request.to_ours else target.state_dict()
    parts = {}
    for name in names:
        for pattern, what in request.form.dropped.items():
            if is_ignored((pattern,), name):
                parts.setdefault(what, []).append(name)
    filled = "" if request.to_ours else "; transformers fills it with random numbers"
    for what, found in parts.items():
        yield f"{', '.join(sorted(found))}: {what}{filled}"


def logits_difference(request: Request, folder: Path) -> float | None:
    """How far the logits of source and target are apart; None where nobody asked."""
    if not request.verify:
        return None
    source = request.source_side, request.src, request.settings
    return proof.compare(source, (request.target_side, folder, None), request.dtype)


def converted_tensors(
    request: Request,
    rules: Sequence[Rule],
    checkpoint: Checkpoint,
    source: nn.Module,
    target: nn.Module,
) -> tuple[Tensors, int, int]:
    """The tensors of the target, one after the other; how many there are, and of how many bytes.

    Names and shapes of the whole file are checked before the first tensor is read.
    """
    form, to_ours, dtype = request.form, request.to_ours, request.dtype
    source_side, target_side = Side.of(source), Side.of(target)
    if to_ours:
        source_side.add_names(form.names_in_files)
    steps = plan(rules, (target_side if to_ours else source_side).shapes)
    ignored = {**form.ignored, **form.dropped}
    source_ignored, target_ignored = (ignored, {}) if to_ours else ({}, ignored)
    used = {name for step in steps for name in step.sources(to_ours)}
    places = locate(checkpoint, source_side, source_ignored, used)
    computed = {*form.zero_if_absent, *form.sinusoids}
    refuse_names("tensors are missing", used - places.keys() - computed)
    for name, place in places.items():
        check_shape(name, checkpoint.shape(place), source_side)
    check_targets(steps, target_side, target_ignored, to_ours)

    def read(name):
        if name in places:
            return numbers(name, checkpoint.read(places[name]))
        if name in form.sinusoids:
            return sinusoids(*source_side.shapes[name])
        return torch.zeros(source_side.shapes[name], dtype=source.config.dtype)

    ours = (target if to_ours else source).config
    tensors = fitting(convert(steps, read, ours, to_ours), target_side)
    if not to_ours:
        tensors = as_in_files(tensors, form.names_in_files)
    if not to_ours and form.theirs is form:
        tensors = under_all_names(tensors, target_side)
    produced = [target_side.shapes[name] for step in steps for name in step.targets(to_ours)]
    size = (
        sum(map(checkpoint.nbytes, places.values()))
        if dtype is None
        else sum(map(prod, produced)) * dtype.itemsize
    )
    return rounded(tensors, dtype), len(produced), size


def numbers(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, unless a model that reads it would answer with NaN."""
    if found := not_a_number(tensor):
        raise ConversionError(
            f"{name} holds {found}, so the model computes nothing: fetch the file again, or "
            "convert a checkpoint from before the training diverged"
        )
    return tensor


def as_in_files(tensors: Tensors, names: dict[str, str]) -> Tensors:
    """By the names that files have, where the model's own are others."""
    for name, tensor in tensors:
        yield names.get(name, name), tensor
        del tensor  # before the next one is read


def under_all_names(tensors: Tensors, side: Side) -> Tensors:
    """Plain PyTorch looks for a tied tensor under each of its names."""
    for name, tensor in tensors:
        yield name, tensor
        for alias, first in side.aliases.items():
            if first == name:
                yield alias, tensor.clone()


def fitting(tensors: Tensors, side: Side) -> Tensors:
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


def rounded(tensors: Tensors, dtype: torch.dtype | None) -> Tensors:
    for name, tensor in tensors:
        if dtype is not None:
            tensor = tensor.to(dtype)
            if not_a_number(tensor):
                raise ConversionError(
                    f"{name} holds a number too large for {dtype}: choose bfloat16 or float32"
                )
        yield name, tensor
        del tensor  # before the next one is read


def counted(tensors: Tensors, total: int, progress: bool) -> Tensors:
    """The tensors behind a bar, where a terminal looks."""
    with tqdm(total=total, unit=" tensors", disable=None if progress else True) as bar:
        for name, tensor in tensors:
            yield name, tensor
            del tensor  # before the next one is read; tqdm would keep it
            bar.update()
