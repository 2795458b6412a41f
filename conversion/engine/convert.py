"""Convert a folder of another format to ours and back, completely or not at all."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from hf_tformer.file_integrity import not_a_number

from . import proof
from .aliases import Config, NamedTensors
from .card import write_card
from .checkpoints import Checkpoint, write_checkpoint
from .destination import appearing
from .errors import ConversionError
from .format import Format
from .plain import PlainFormat
from .request import Conversion, Request
from .rules import (
    SHOWN,
    Rule,
    SavedTensors,
    Step,
    as_tuple,
    check_shape,
    check_targets,
    convert,
    is_ignored,
    locate,
    plan,
    refuse_names,
)
from .side_files import SideFiles
from .ties import how_to_untie
from .transforms import sinusoids
from .translation import ids_beyond, translate

DRAFTS = "a layer that drafts tokens, which transformers leaves out, too"


def transfer(request: Request) -> Conversion:
    source_side, target_side = request.source_side, request.target_side
    config = source_side.load_config(request.src, request.settings)
    target_config = translate(config, request.format, request.to_ours, request.dtype)
    source, target = source_side.build(config), target_side.build(target_config)
    # A plain module has no ids and generation settings, but the model made from it does.
    described = source if hasattr(source, "generation_config") else target
    side_files = SideFiles(request.src, described, request.tokenizer)
    rules = request.format.table(config if request.to_ours else target_config)
    # The checkpoint is not kept: its tensors must be released when the logits are compared.
    checkpoint = source_side.checkpoint(request.src)
    format = request.format
    if request.to_ours and isinstance(format, Format) and format.has_draft_layers:
        drafts = dict.fromkeys(layers_beyond(checkpoint, config.num_hidden_layers), DRAFTS)
        request = replace(request, format=replace(format, dropped={**format.dropped, **drafts}))
    omitted = (
        *omitted_parts(request, checkpoint, target),
        *rounded_sinusoids(request, rules, checkpoint, target_config.dtype),
        *(unknown_ids(config, target_config) if request.to_ours else ()),
    )
    tensors, count, size = converted_tensors(request, rules, checkpoint, source, target)
    del checkpoint
    with appearing(request.dst, request.src, size) as folder:
        write_checkpoint(folder, counted(tensors, count, request.progress))
        target_side.save_description(target, folder)
        disagreements = tuple(side_files.save(folder))
        done = Conversion(
            Path(request.dst),
            request.format.name,
            count,
            logits_difference(request, folder),
            disagreements,
            getattr(config, "assumed", {}),
            omitted,
            getattr(target_side, "answers", "logits"),
        )
        write_card(folder, request.format, request.to_ours, done, request.src)
    return done


def omitted_parts(request: Request, checkpoint: Checkpoint, target: nn.Module) -> Iterator[str]:
    """Yield a sentence for each part of theirs that has no place in ours."""
    if absent := getattr(request.format, "absent_head", ""):
        yield (
            f"{absent}, which config.json names: the file holds no tensor of its head, so the body "
            "was imported alone"
        )
    names = checkpoint.names() if request.to_ours else target.state_dict()
    parts: dict[str, list[str]] = {}
    for name in names:
        for pattern, what in request.format.dropped.items():
            if is_ignored((pattern,), name):
                parts.setdefault(what, []).append(name)
    filled = "" if request.to_ours else "; transformers fills it with random numbers"
    for what, found in parts.items():
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield f"{', '.join(sorted(found)[:SHOWN])}{more}: {what}{filled}"


def layers_beyond(checkpoint: Checkpoint, depth: int) -> Iterator[str]:
    """Yield the names of tensors in layers behind the last one that the configuration counts.

    In Mellum these have a name of their own, mtp.
    """
    for name in checkpoint.names():
        number = re.match(r"model\.layers\.(\d+)\.", name)
        if name.startswith("mtp.") or (number and int(number[1]) >= depth):
            yield name


def unknown_ids(config: Config, target: Config) -> Iterator[str]:
    """Yield a sentence for each special token whose id is beyond the vocabulary."""
    for name in sorted(name for name in vars(target) if name.endswith("_token_id")):
        if beyond := ids_beyond(getattr(config, name, None), target.vocab_size):
            shown = ", ".join(map(str, beyond))
            yield f"{name} {shown}: beyond the vocabulary of {target.vocab_size}, no token has it"


def rounded_sinusoids(
    request: Request, rules: Sequence[Rule], checkpoint: Checkpoint, written: torch.dtype | None
) -> Iterator[str]:
    """Yield a sentence where a file of theirs holds tables that ours computes, and rounds them."""
    in_rules = {name for rule in rules for name in as_tuple(rule.theirs)}
    held = set(checkpoint.names()) if request.to_ours else in_rules
    for name in request.format.sinusoids:
        if name in held:
            dtype = checkpoint.read(name).dtype if request.to_ours else written
            if dtype is not None and dtype.itemsize < torch.float32.itemsize:
                yield (
                    f"{name}: the rounding of its sinusoids to {dtype}, which transformers reads "
                    "and hf_tformer computes in full; the difference above holds this rounding"
                )


def logits_difference(request: Request, folder: Path) -> float | None:
    """Return the largest difference between the logits of both models; None if not verified."""
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
) -> tuple[NamedTensors, int, int]:
    """Return the tensors of the target one by one, their number, and their size in bytes.

    Names and shapes of the whole file are checked before the first tensor is read.
    """
    format, to_ours, dtype = request.format, request.to_ours, request.dtype
    source_tensors, target_tensors = SavedTensors.of(source), SavedTensors.of(target)
    source_config: Any = source.config
    may_lack: dict[str, str] = {}
    if to_ours:
        our_tensors, our_config = target_tensors, target.config
    else:
        our_tensors, our_config = source_tensors, source_config
        may_lack = {**format.ignored, **format.dropped}
    steps = plan(rules, our_tensors.shapes)
    places = checked_places(request, steps, checkpoint, source_tensors)
    check_targets(steps, target_tensors, may_lack, to_ours)

    def read(name: str) -> torch.Tensor:
        if name in places:
            return numbers(name, checkpoint.read(places[name]))
        # Absent from the file: transformers computes or zero-fills it, too.
        if name in format.sinusoids:
            return sinusoids(*source_tensors.shapes[name])
        return torch.zeros(source_tensors.shapes[name], dtype=source_config.dtype)

    tensors = fitting(convert(steps, read, our_config, to_ours), target_tensors)
    if not to_ours and isinstance(format, PlainFormat):  # plain PyTorch does not tie on loading
        tensors = under_all_names(tensors, target_tensors)
    produced = [target_tensors.shapes[name] for step in steps for name in step.targets(to_ours)]
    size = (
        sum(map(checkpoint.nbytes, places.values()))
        if dtype is None
        else sum(map(prod, produced)) * dtype.itemsize
    )
    return rounded(tensors, dtype), len(produced), size


def checked_places(
    request: Request, steps: Sequence[Step], checkpoint: Checkpoint, source: SavedTensors
) -> dict[str, str]:
    """Return where the steps find their sources in the file, whose names and shapes are checked."""
    format = request.format
    ignored = {**format.ignored, **format.dropped} if request.to_ours else {}
    used = {name for step in steps for name in step.sources(request.to_ours)}
    untie = partial(how_to_untie, request.source_side, source, checkpoint)
    places = locate(checkpoint, source, ignored, used, untie)
    computed = {*format.zero_if_absent, *format.sinusoids}
    refuse_names("tensors are missing", used - places.keys() - computed)
    for name, place in places.items():
        check_shape(name, checkpoint.shape(place), source)
    return places


def numbers(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself, or refuse one that holds NaN or infinity."""
    if found := not_a_number(tensor):
        raise ConversionError(
            f"{name} holds {found}, with which no output is a number: fetch the file again, or "
            "convert a checkpoint from before the training diverged"
        )
    return tensor


def under_all_names(tensors: NamedTensors, saved: SavedTensors) -> NamedTensors:
    """Yield a tied tensor under each of its names, as plain PyTorch reads it."""
    for name, tensor in tensors:
        yield name, tensor
        for alias, first in saved.aliases.items():
            if first == name:
                yield alias, tensor.clone()


def fitting(tensors: NamedTensors, target: SavedTensors) -> NamedTensors:
    """Yield the tensors themselves, or refuse one that does not fit the model."""
    for name, tensor in tensors:
        check_shape(name, tensor.shape, target)
        if not tensor.is_floating_point():
            raise ConversionError(
                f"{name} holds {tensor.dtype}, as quantised weights do: "
                "convert the model they were made from"
            )
        yield name, tensor
        del tensor  # before the next one is read


def rounded(tensors: NamedTensors, dtype: torch.dtype | None) -> NamedTensors:
    for name, tensor in tensors:
        if dtype is not None:
            tensor = tensor.to(dtype)
            if not_a_number(tensor):
                raise ConversionError(
                    f"{name} holds a number too large for {dtype}: choose bfloat16 or float32"
                )
        yield name, tensor
        del tensor  # before the next one is read


def counted(tensors: NamedTensors, total: int, progress: bool) -> NamedTensors:
    """Yield the tensors, with a progress bar on a terminal."""
    with tqdm(total=total, unit=" tensors", disable=None if progress else True) as bar:
        for name, tensor in tensors:
            yield name, tensor
            del tensor  # before the next one is read; tqdm would keep it
            bar.update()
