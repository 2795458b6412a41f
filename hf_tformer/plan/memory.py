"""How many bytes a device needs in a training step, and where the step needs most.

Held all the time: weights and AdamW's two moments. On top of them a step is walked through, span
by span: what the way forward keeps, what comes and goes, and gradients as they come. The most is
either where the loss is made, at the end of the way back, or in the optimizer's step.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..model.losses import CHUNK_TOKENS
from .parameters import Unit, distinct_parameters, head_and_table, parameters_of, units_of
from .skeleton import stacks_of
from .spans import BETWEEN, HEAD, Span, Way

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .layouts import StagedLayout

MOMENTS = 2


@dataclass(frozen=True)
class Precision:
    """Bytes of a number that is stored, that is computed with, and that is reduced."""

    stored: int
    computed: int
    reduced: int


PRECISIONS = {
    "float32": Precision(4, 4, 4),
    "mixed": Precision(4, 2, 4),  # autocast, or shards that are gathered in bfloat16
    "bfloat16": Precision(2, 2, 2),
}


@dataclass(frozen=True)
class Recipe:
    """How a device trains, in any layout: `parts` are those that a step's gradients add up of."""

    row_length: int
    rows: int = 1
    parts: int = 1
    precision: str = "mixed"
    is_checkpointed: bool = False
    has_all_logits: bool = False  # else the loss is made of a few tokens' logits at a time
    backend: str = "sdpa"

    def way(self, tensor: int, is_sharded: bool) -> Way:
        is_half = self.precision == "bfloat16" or (self.precision == "mixed" and is_sharded)
        return Way(
            self.rows,
            self.row_length,
            torch.bfloat16 if is_half else torch.float32,
            self.precision == "mixed" and not is_sharded,
            self.is_checkpointed,
            tensor,
            self.backend,
        )


@dataclass(frozen=True)
class Memory:
    """Bytes of one device. `peak` is no sum: activations are gone when all gradients are there."""

    weights: int
    optimizer: int
    gradients: int  # all of them, and what DDP copies them to
    activations: int  # kept at the beginning of the way back
    peak: int
    moment: str  # where the peak is


def step_memory(
    model: "PreTrainedModel", spans: list[Span], layout: "StagedLayout", recipe: Recipe
) -> Memory:
    """`spans` are those of the recipe's way; `model` is a skeleton."""
    precision = PRECISIONS[recipe.precision]
    holdings = Holdings(model, layout, precision, recipe.parts)
    if not recipe.has_all_logits:
        spans = [lean_head(span, model, layout.tensor, recipe) for span in spans]
    live = start = holdings.weights + holdings.optimizer + holdings.standing
    peak, moment, activations = start, "the optimizer's step", 0
    for span in spans:
        for _ in range(span.times):
            highest = live + span.peak + holdings.during(span)
            if highest > peak:
                peak, moment = highest, moment_of(span)
            live += span.change + holdings.left(span)
        if not span.is_backward:
            activations = live - start
    everything = start - holdings.standing + holdings.gradients
    if everything + holdings.weights > peak:  # AdamW makes a list as long as the weights
        peak, moment = everything + holdings.weights, "the optimizer's step"
    weights, optimizer = holdings.weights, holdings.optimizer
    return Memory(weights, optimizer, holdings.gradients, activations, peak, moment)


def stage_memory(
    model: "PreTrainedModel", spans: list[Span], layout: "StagedLayout", recipe: Recipe
) -> Memory:
    """Of the first stage or the last, whichever needs more, one part forward and one back in turn.

    Layers are shared evenly. The first stage has the table, and keeps the activations of as many
    parts as there are stages; the last has the head and the loss, and keeps those of one.
    """
    precision, stages = PRECISIONS[recipe.precision], layout.stages
    parameters = parameters_of(model)
    stacks = tuple(f"{name}." for name in stacks_of(model))
    layers = sum(p.numbers() for name, p in parameters.items() if name.startswith(stacks))
    first, last = (
        parameters[f"{name}.weight"].numbers() for name in reversed(head_and_table(model))
    )
    forward = [found for found in spans if found.place != HEAD and not found.is_backward]
    kept = sum(found.change * found.times for found in forward) // stages
    loss = next(found for found in spans if found.place == HEAD)
    if not recipe.has_all_logits:
        loss = lean_head(loss, model, 1, recipe)
    highest = max(found.peak for found in spans if found.place != HEAD)
    copies = 2 if layout.replicate > 1 else 1  # DDP's buckets

    def memory(ends: int, parts: int, most: int) -> Memory:
        weights = (layers // stages + ends) * precision.stored
        gradients = copies * weights
        held = (1 + MOMENTS) * weights + gradients
        peak = held + max(parts * kept + most, weights)
        return Memory(weights, MOMENTS * weights, gradients, parts * kept, peak, "the way back")

    in_flight = min(stages, recipe.parts)
    at_ends = memory(first, in_flight, highest), memory(last, 1, max(loss.peak, highest))
    return max(at_ends, key=lambda found: found.peak)


def moment_of(span: Span) -> str:
    if span.place == HEAD:
        return "the loss"
    return "the way back" if span.is_backward else "the way forward"


class Holdings:
    """What a device holds of the parameters, and what else of them is there during a span."""

    def __init__(
        self,
        model: "PreTrainedModel",
        layout: "StagedLayout",
        precision: Precision,
        parts: int,
    ):
        self.layout, self.precision = layout, precision
        self.parameters = {found.name: found for found in distinct_parameters(model)}
        numbers = sum(self.numbers(name) for name in self.parameters)
        self.weights = numbers * precision.stored
        self.optimizer = MOMENTS * self.weights
        # DDP copies gradients to buckets, which are there from the beginning.
        buckets = self.weights if layout.is_whole and layout.replicate > 1 else 0
        self.gradients = self.weights + buckets
        self.is_added = parts > 1  # to the gradients of the part before
        self.standing = self.gradients if self.is_added else buckets
        units = units_of(model, layout.tensor) if layout.is_sharded else []
        self.units: dict[str, Unit] = {unit.place: unit for unit in units}

    def numbers(self, name: str) -> int:
        return self.parameters[name].numbers(self.layout.tensor, self.layout.shard)

    def left(self, span: Span) -> int:
        """Bytes of the gradients that a span leaves behind."""
        if self.is_added:
            return 0
        names = [name for name in span.finished if name in self.parameters]
        return sum(self.numbers(name) for name in names) * self.precision.stored

    def during(self, span: Span) -> int:
        """Bytes of the gathered weights, and of the buffers to gather and to reduce them."""
        total = 0
        for unit in self.units_during(span):
            numbers = unit.numbers(self.layout.tensor)
            total += 2 * numbers * self.precision.computed  # what was received, and the weights
            if span.is_backward and span.place != HEAD:
                total += numbers * self.precision.reduced
        if rest := self.units.get("rest"):
            total += rest.numbers(self.layout.tensor) * self.precision.computed
        return total

    def units_during(self, span: Span) -> list[Unit]:
        """Between the layers are both ends; the rest is there from first to last."""
        places = ("embed", "head") if span.place == BETWEEN else (span.place,)
        return [self.units[place] for place in places if place in self.units]


def lean_head(span: Span, model: "PreTrainedModel", tensor: int, recipe: Recipe) -> Span:
    """The same where gradients are made of a few tokens' logits at a time, in float32."""
    if span.place != HEAD:
        return span
    words, size = model.get_output_embeddings().weight.shape
    words = -(-words // tensor)
    tokens, computed = recipe.rows * recipe.row_length, PRECISIONS[recipe.precision].computed
    chunk = min(CHUNK_TOKENS, tokens) * words
    peak = 4 * (chunk + words * size + tokens * size)
    if computed == 2:  # one copy of the chunk, and one of what it adds to the weight's gradient
        peak += 2 * (chunk + words * size)
    return replace(span, peak=peak)
