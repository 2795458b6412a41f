"""Compute how many bytes a device needs in a training step, and where it needs most.

Weights and AdamW's two moments are held all the time. On top of them, the spans of a step are
walked through in order: what the forward pass keeps, temporary buffers, and gradients as they are
computed. The peak is at the loss, in the backward pass or in the optimizer step.
"""

from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel

from ..model.losses import CHUNK_TOKENS
from .layouts import StagedLayout
from .parameters import Unit, distinct_parameters, head_and_table, parameters_of, units_of
from .skeleton import stacks_of
from .spans import BETWEEN, HEAD, Pass, Span

MOMENTS = 2


@dataclass(frozen=True)
class Precision:
    """Bytes per number of stored weights, of computation, and of reduced gradients."""

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
    """How a device trains, in any layout; a step accumulates the gradients of `parts` passes."""

    row_length: int
    rows: int = 1  # batch size of a pass
    parts: int = 1
    precision: str = "mixed"
    is_checkpointed: bool = False
    has_all_logits: bool = False  # otherwise the loss takes the logits of a few tokens at a time
    backend: str = "sdpa"

    def one_pass(self, tensor: int, is_sharded: bool) -> Pass:
        """Return the settings of one pass, with each layer in `tensor` parts."""
        is_half = self.precision == "bfloat16" or (self.precision == "mixed" and is_sharded)
        return Pass(
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
    """Bytes of one device.

    `peak` is not the sum of the others: activations are released while gradients are computed.
    """

    weights: int
    optimizer: int
    gradients: int  # with the buckets that DDP copies them to
    activations: int  # kept when the backward pass begins
    peak: int
    moment: str  # where in the step the peak is


def step_memory(
    model: PreTrainedModel, spans: list[Span], layout: StagedLayout, recipe: Recipe
) -> Memory:
    """Return the memory of a layout without stages, from the spans of the recipe's pass."""
    precision = PRECISIONS[recipe.precision]
    held = HeldParameters(model, layout, precision, recipe.parts)
    if not recipe.has_all_logits:
        spans = [with_chunked_loss(span, model, layout.tensor, recipe) for span in spans]
    live = start = held.weights + held.optimizer + held.permanent_gradients
    peak, place, activations = start, "the optimizer's step", 0
    for span in spans:
        for _ in range(span.times):
            highest = live + span.peak + held.gathered_during(span)
            if highest > peak:
                peak, place = highest, describe_place(span)
            live += span.change + held.gradients_after(span)
        if not span.is_backward:
            activations = live - start
    everything = start - held.permanent_gradients + held.gradients
    if everything + held.weights > peak:  # AdamW makes a temporary copy of all weights
        peak, place = everything + held.weights, "the optimizer's step"
    return Memory(held.weights, held.optimizer, held.gradients, activations, peak, place)


def stage_memory(
    model: PreTrainedModel, spans: list[Span], layout: StagedLayout, recipe: Recipe
) -> Memory:
    """Return the memory of the first or the last pipeline stage, whichever needs more.

    The schedule alternates between forward and backward passes (1F1B), and stages have equally
    many layers. The first stage has the input table and keeps the activations of as many
    microbatches as there are stages; the last has the head and the loss, and keeps those of one.
    """
    precision, stages = PRECISIONS[recipe.precision], layout.stages
    parameters = parameters_of(model)
    stacks = tuple(f"{name}." for name in stacks_of(model))
    layers = sum(p.numbers() for name, p in parameters.items() if name.startswith(stacks))
    first, last = (
        parameters[f"{name}.weight"].numbers() for name in reversed(head_and_table(model))
    )
    forward = [span for span in spans if span.place != HEAD and not span.is_backward]
    kept = sum(span.change * span.times for span in forward) // stages
    loss = next(span for span in spans if span.place == HEAD)
    if not recipe.has_all_logits:
        loss = with_chunked_loss(loss, model, 1, recipe)
    highest = max(span.peak for span in spans if span.place != HEAD)
    copies = 2 if layout.replicate > 1 else 1  # DDP's buckets

    def memory(embeddings: int, microbatches: int, temporary: int) -> Memory:
        weights = (layers // stages + embeddings) * precision.stored
        gradients = copies * weights
        held = (1 + MOMENTS) * weights + gradients
        activations = microbatches * kept
        peak = held + max(activations + temporary, weights)
        return Memory(weights, MOMENTS * weights, gradients, activations, peak, "the backward pass")

    in_flight = min(stages, recipe.parts)
    both = memory(first, in_flight, highest), memory(last, 1, max(loss.peak, highest))
    return max(both, key=lambda found: found.peak)


def describe_place(span: Span) -> str:
    if span.place == HEAD:
        return "the loss"
    return f"the {'backward' if span.is_backward else 'forward'} pass"


class HeldParameters:
    """The bytes of a device's parameters and gradients, all the time and during a span."""

    def __init__(
        self, model: PreTrainedModel, layout: StagedLayout, precision: Precision, parts: int
    ):
        self.layout, self.precision = layout, precision
        self.parameters = {found.name: found for found in distinct_parameters(model)}
        numbers = sum(self.numbers(name) for name in self.parameters)
        self.weights = numbers * precision.stored
        self.optimizer = MOMENTS * self.weights
        # DDP copies gradients to buckets, which exist from the beginning.
        buckets = self.weights if layout.is_whole and layout.replicate > 1 else 0
        self.gradients = self.weights + buckets
        self.accumulates = parts > 1
        self.permanent_gradients = self.gradients if self.accumulates else buckets
        units = units_of(model, layout.tensor) if layout.is_sharded else []
        self.units: dict[str, Unit] = {unit.place: unit for unit in units}

    def numbers(self, name: str) -> int:
        return self.parameters[name].numbers(self.layout.tensor, self.layout.shard)

    def gradients_after(self, span: Span) -> int:
        """Return the bytes of the gradients that a span adds."""
        if self.accumulates:
            return 0
        names = [name for name in span.finished if name in self.parameters]
        return sum(self.numbers(name) for name in names) * self.precision.stored

    def gathered_during(self, span: Span) -> int:
        """Return the bytes of gathered weights, and of the buffers to gather and reduce them."""
        total = 0
        for unit in self.units_during(span):
            numbers = unit.numbers(self.layout.tensor)
            total += 2 * numbers * self.precision.computed  # the receive buffer and the weights
            if span.is_backward and span.place != HEAD:
                total += numbers * self.precision.reduced
        if rest := self.units.get("rest"):  # gathered throughout the step
            total += rest.numbers(self.layout.tensor) * self.precision.computed
        return total

    def units_during(self, span: Span) -> list[Unit]:
        """Return the units that a span computes with; between the layers it may be either end."""
        places = ("embed", "head") if span.place == BETWEEN else (span.place,)
        return [self.units[place] for place in places if place in self.units]


def with_chunked_loss(span: Span, model: PreTrainedModel, tensor: int, recipe: Recipe) -> Span:
    """Return the head's span as it is where the loss takes the logits of a few tokens at a time.

    Gradients are accumulated in float32. Other spans are returned as they are.
    """
    if span.place != HEAD:
        return span
    vocabulary, size = model.get_output_embeddings().weight.shape
    vocabulary = -(-vocabulary // tensor)
    tokens, computed = recipe.rows * recipe.row_length, PRECISIONS[recipe.precision].computed
    chunk = min(CHUNK_TOKENS, tokens) * vocabulary
    peak = 4 * (chunk + vocabulary * size + tokens * size)
    if computed == 2:  # copies of the chunk, and of what it adds to the weight's gradient
        peak += 2 * (chunk + vocabulary * size)
    return replace(span, peak=peak)
