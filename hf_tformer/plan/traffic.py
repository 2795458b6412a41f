"""Count the bytes that a device sends in a training step, by collective.

A collective counts with the bytes of its whole tensor: the output of an all-gather, the input of a
reduce-scatter. In a ring of n devices each sends (n - 1) / n of them, and twice as much for an
all-reduce, which is both.
"""

import re
from collections import Counter
from dataclasses import dataclass

from transformers import PreTrainedModel

from .layouts import StagedLayout
from .memory import PRECISIONS, Recipe
from .parameters import distinct_parameters, head_and_table, units_of
from .skeleton import stacks_of

SUMS_OF_LOSS = 3  # float32 numbers per token that a loss over a split vocabulary exchanges
PASSES = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2}


@dataclass(frozen=True)
class Collective:
    """The bytes of all calls of a collective in a step; devices along `axis` take part."""

    kind: str
    axis: str  # tensor, shard, replicate, stages
    bytes: int


def step_traffic(model: PreTrainedModel, layout: StagedLayout, recipe: Recipe) -> list[Collective]:
    """Return the collectives of a training step."""
    totals: Counter[tuple[str, str]] = Counter()
    if layout.tensor > 1:
        totals.update(tensor_traffic(model, layout.tensor, recipe))
    if layout.is_sharded:
        totals.update(shard_traffic(model, layout, recipe))
    elif layout.replicate > 1:  # DDP, once per step
        numbers = sum(found.numbers() for found in distinct_parameters(model)) // layout.stages
        totals["all-reduce", "replicate"] += numbers * PRECISIONS[recipe.precision].stored
    if layout.stages > 1:  # hidden states forward, their gradients backward
        states = recipe.rows * recipe.row_length * model.config.hidden_size
        totals["send", "stages"] += 2 * recipe.parts * states * computed_bytes(recipe)
    return [Collective(*key, size) for key, size in totals.items() if size]


def computed_bytes(recipe: Recipe) -> int:
    return PRECISIONS[recipe.precision].computed


def shard_traffic(
    model: PreTrainedModel, layout: StagedLayout, recipe: Recipe
) -> dict[tuple[str, str], int]:
    """Return the traffic of FSDP: weights and gradients in each pass, gradients between copies."""
    precision = PRECISIONS[recipe.precision]
    gathered = reduced = shared = 0
    for unit in units_of(model, layout.tensor):
        whole = layout.shard * unit.numbers(layout.tensor, layout.shard)
        gathered += unit.gathers * whole * precision.computed
        reduced += whole * precision.reduced
        shared += unit.numbers(layout.tensor, layout.shard) * precision.reduced
    has_shards, has_copies = layout.shard > 1, layout.replicate > 1
    return {
        ("all-gather", "shard"): has_shards * recipe.parts * gathered,
        ("reduce-scatter", "shard"): has_shards * recipe.parts * reduced,
        ("all-reduce", "replicate"): has_copies * recipe.parts * shared,
    }


def tensor_traffic(
    model: PreTrainedModel, tensor: int, recipe: Recipe
) -> dict[tuple[str, str], int]:
    """Return the traffic of tensor parallelism.

    The forward pass sums hidden states after each module that is split by rows, the backward pass
    their gradients before each that is split by columns. The loss gathers all logits, or sums a
    few numbers per token.
    """
    rounds = count_sums(model)
    tokens = recipe.rows * recipe.row_length
    size = tokens * computed_bytes(recipe)
    states = size * model.config.hidden_size
    sums = rounds["rowwise"] + rounds["table"] + rounds["colwise"]
    if recipe.is_checkpointed:
        sums += rounds["rowwise"] - last_sums(model)
    vocabulary = tensor * -(-model.get_output_embeddings().weight.shape[0] // tensor)
    if recipe.has_all_logits:
        summed, gathered = 0, rounds["head"] * size * vocabulary
    else:
        summed, gathered = rounds["head"] * SUMS_OF_LOSS * tokens * 4, 0
    return {
        ("all-reduce", "tensor"): recipe.parts * (sums * states + summed),
        ("all-gather", "tensor"): recipe.parts * gathered,
    }


def last_sums(model: PreTrainedModel) -> int:
    """Count the sums that recomputation omits: the last of each layer, unless a norm follows it."""
    is_needed = getattr(model.config, "norm_position", "pre") != "pre"
    return 0 if is_needed else sum(len(layers) for layers in stacks_of(model).values())


def count_sums(model: PreTrainedModel) -> Counter[str]:
    """Count modules by their tensor parallel style; the head also counts as split by columns."""
    head, table = head_and_table(model)
    found: Counter[str] = Counter()
    for name, _ in model.named_modules():
        style = model.tp_plan.get(re.sub(r"\.\d+\.", ".*.", name), "")
        found["rowwise"] += style == "rowwise"
        found["colwise"] += style.startswith("colwise")
        found["head"] += name == head and style.startswith("colwise")
        found["table"] += name == table and bool(style)
    return found
