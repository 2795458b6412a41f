"""Compare all layouts of a number of devices, the fastest one that fits first.

    step seconds = max(operations / rate · bubble, bytes of data parallelism / bandwidth)
                   + bytes of tensor parallelism / bandwidth

Shards are gathered and gradients reduced while devices compute; sums within a layer are waited
for. Stages wait for one another: s stages and m microbatches take (m + s - 1) / m times as long,
the bubble. A group that extends beyond a node is as slow as the connection between nodes.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from transformers import PreTrainedConfig

from .flops import training_flops
from .layouts import StagedLayout
from .memory import Memory, Recipe, stage_memory, step_memory
from .skeleton import skeleton_of, stacks_of
from .spans import measure_spans
from .traffic import PASSES, Collective, step_traffic

GB = 10**9


@dataclass(frozen=True)
class Machine:
    devices: int
    memory: float  # bytes per device
    node: int = 8  # devices per node
    flops: float = 989e12  # peak FLOP/s of a device: H100, bfloat16
    utilisation: float = 0.5  # share of the peak that matrix products reach
    within: float = 450 * GB  # bytes per second that a device sends within its node
    between: float = 50 * GB  # bytes per second that a device sends to other nodes


@dataclass(frozen=True)
class Choice:
    """A layout with its estimates, or with a `refusal`: a sentence on why it is not possible."""

    layout: StagedLayout
    recipe: Recipe
    memory: Memory | None = None
    traffic: tuple[Collective, ...] = ()
    seconds: float = 0.0
    refusal: str = ""

    @property
    def sent(self) -> float:
        """Bytes that a device sends in a step."""
        return sum(bytes_sent(found, self.layout) for found in self.traffic)


class Planner:
    """Estimates memory, traffic and time of one model on one machine; measurements are cached."""

    def __init__(self, config: PreTrainedConfig, machine: Machine):
        self.config, self.machine = config, machine
        self.model = skeleton_of(config)
        self.operations = functools.cache(functools.partial(training_flops, config))
        self.spans = functools.cache(functools.partial(measure_spans, config))

    def choices(self, recipe: Recipe, rows_per_step: int) -> list[Choice]:
        """Return one choice for each layout: possible ones first, by time, then the refused."""
        found = [
            self.choose(layout, recipe, rows_per_step)
            for layout in layouts(self.machine.devices, self.machine.node)
        ]
        return sorted(found, key=lambda choice: (bool(choice.refusal), choice.seconds))

    def choose(self, layout: StagedLayout, recipe: Recipe, rows_per_step: int) -> Choice:
        """Estimate a layout, with activation checkpointing only where it does not fit without."""
        groups = layout.data_size * recipe.rows
        if rows_per_step % groups:
            reason = f"{rows_per_step} sequences per step are not a multiple of {groups} at once"
            return Choice(layout, recipe, refusal=reason)
        recipe = replace(recipe, parts=rows_per_step // groups)
        try:
            if self.config.model_type.startswith("tformer_"):  # refuse reads fields of our models
                layout.refuse(self.config)
            plain = self.estimate(layout, recipe)
            if not plain.refusal:
                return plain
            return self.estimate(layout, replace(recipe, is_checkpointed=True))
        except ValueError as error:  # heads that cannot be split, too few layers
            return Choice(layout, recipe, refusal=str(error))

    def estimate(self, layout: StagedLayout, recipe: Recipe) -> Choice:
        if layout.stages > 1:
            self.refuse_stages(layout)
        weigh = stage_memory if layout.stages > 1 else step_memory
        spans = self.spans(recipe.one_pass(layout.tensor, layout.is_sharded))
        memory = weigh(self.model, spans, layout, recipe)
        traffic = tuple(step_traffic(self.model, layout, recipe))
        seconds = self.seconds(layout, recipe, traffic)
        refusal = too_much(memory.peak, self.machine.memory)
        return Choice(layout, recipe, memory, traffic, seconds, refusal)

    def refuse_stages(self, layout: StagedLayout) -> None:
        stacks = stacks_of(self.model)
        if len(stacks) > 1:
            raise ValueError("every decoder layer reads the encoder's output, so no stages exist")
        (depth,) = map(len, stacks.values())
        if depth % layout.stages:
            raise ValueError(f"{depth} layers cannot be shared evenly by {layout.stages} stages")

    def seconds(
        self, layout: StagedLayout, recipe: Recipe, traffic: tuple[Collective, ...]
    ) -> float:
        machine = self.machine
        tokens = recipe.rows * recipe.parts * recipe.row_length * layout.data_size
        operations = tokens * self.operations(recipe.row_length)
        if recipe.is_checkpointed:  # layers run forward twice: 8 operations instead of 6
            operations *= 4 / 3
        computing = operations / (machine.devices * machine.flops * machine.utilisation)
        waiting = {True: 0.0, False: 0.0}
        for found in traffic:
            waiting[found.axis == "tensor"] += bytes_sent(found, layout) / self.speed(found, layout)
        bubble = (recipe.parts + layout.stages - 1) / recipe.parts
        return max(computing * bubble, waiting[False]) + waiting[True]

    def speed(self, collective: Collective, layout: StagedLayout) -> float:
        """Return the bytes per second of the slowest connection that a collective uses."""
        reach = {
            "tensor": layout.tensor,
            "shard": layout.tensor * layout.shard,
            "replicate": layout.tensor * layout.shard * layout.replicate,
            "stages": layout.processes,
        }[collective.axis]
        return self.machine.within if reach <= self.machine.node else self.machine.between


def bytes_sent(collective: Collective, layout: StagedLayout) -> float:
    """Return the bytes that one device sends for a collective, as in a ring."""
    if collective.kind == "send":
        return collective.bytes
    members = getattr(layout, collective.axis)
    return PASSES[collective.kind] * collective.bytes * (members - 1) / members


def too_much(peak: int, memory: float) -> str:
    if peak <= memory:
        return ""
    return f"a device needs {peak / GB:,.4g} GB and has {memory / GB:,.4g}"


def layouts(devices: int, node: int) -> Iterator[StagedLayout]:
    """Yield the layouts to compare.

    They are copies (DDP), shards within a node and across nodes (FSDP2, HSDP), tensor parallel
    parts within a node, and pipeline stages.
    """
    for tensor in (1, 2, 4, 8):
        if tensor > min(node, devices) or devices % tensor:
            continue
        rest = devices // tensor
        if tensor == 1 or rest == 1:
            yield StagedLayout(replicate=rest, tensor=tensor)
        for shard in sorted({node // tensor, 8 * node // tensor, rest}):
            if 1 < shard <= rest and rest % shard == 0:
                yield StagedLayout(rest // shard, shard, tensor)
    for stages in (2, 4, 8):
        if devices % stages == 0:
            yield StagedLayout(replicate=devices // stages, stages=stages)
