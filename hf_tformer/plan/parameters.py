"""Determine which part of each parameter a device holds, and which are gathered together.

Tensor parallel styles are those of the model's own plan. FSDP units are those of transformers:

- one unit for each layer and one for the input table, released after use and gathered again for
  the backward pass;
- one for the last norm and the head, which is kept;
- one for everything else.

A tied table is gathered with the norm. Where tensor parallelism splits it as well, the unit of
everything else gathers it once more under its other name.
"""

import math
import re
from dataclasses import dataclass

from transformers import PreTrainedModel

from .skeleton import stacks_of

COLUMNS, ROWS = 0, 1  # the dimension of a weight that tensor parallelism shards
DIMENSIONS = {
    "colwise": COLUMNS,
    "colwise_rep": COLUMNS,
    "colwise_gather_output": COLUMNS,
    "embedding_rowwise": COLUMNS,
    "rowwise": ROWS,
}


@dataclass(frozen=True)
class Parameter:
    name: str
    shape: tuple[int, ...]
    tensor_dimension: int | None  # along which tensor parallelism splits it, if it does

    def part(self, tensor: int) -> tuple[int, ...]:
        """Return the shape of the largest of `tensor` parts."""
        shape = list(self.shape)
        if self.tensor_dimension is not None:
            shape[self.tensor_dimension] = math.ceil(shape[self.tensor_dimension] / tensor)
        return tuple(shape)

    def numbers(self, tensor: int = 1, shard: int = 1) -> int:
        """Return the numbers in the largest part, to which gathering pads all others."""
        first, *others = self.part(tensor)
        return math.ceil(first / shard) * math.prod(others)


@dataclass(frozen=True)
class Unit:
    """Parameters that are gathered together."""

    place: str  # a stack of layers, "embed", "head" or "rest"
    parameters: tuple[Parameter, ...]
    gathers: int  # in a forward and a backward pass

    def numbers(self, tensor: int = 1, shard: int = 1) -> int:
        return sum(parameter.numbers(tensor, shard) for parameter in self.parameters)


def parameters_of(model: PreTrainedModel) -> dict[str, Parameter]:
    """Return all parameters by name; a tied one appears under each of its names."""
    plan = model.tp_plan or {}
    return {
        name: Parameter(name, tuple(parameter.shape), split_dimension(name, parameter.ndim, plan))
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }


def split_dimension(name: str, dimensions: int, plan: dict[str, str]) -> int | None:
    """Return the dimension along which a tensor parallel plan splits a parameter, if it does."""
    module, _, _ = name.rpartition(".")
    dimension = DIMENSIONS.get(plan.get(re.sub(r"\.\d+\.", ".*.", module), ""))
    return None if dimension is None or dimension >= dimensions else dimension


def distinct_parameters(model: PreTrainedModel) -> list[Parameter]:
    """Return each parameter once, however many names it has."""
    known = parameters_of(model)
    return [known[name] for name, _ in model.named_parameters()]


def units_of(model: PreTrainedModel, tensor: int) -> list[Unit]:
    """Return the FSDP units of a model whose layers are split into `tensor` parts."""
    left = parameters_of(model)
    plan = dict(model._fsdp_plan or {})
    head, table = head_and_table(model)
    is_tied = model.get_submodule(head).weight is model.get_submodule(table).weight
    if is_tied and plan.pop(head, None):
        plan[table] = "keep_full_weight"

    def take(prefix: str) -> tuple[Parameter, ...]:
        names = [name for name in left if name.startswith(prefix + ".")]
        return tuple(left.pop(name) for name in names)

    units = []
    for stack, layers in stacks_of(model).items():
        if f"{stack}.*" in plan:
            units += [Unit(stack, take(f"{stack}.{index}"), 2) for index in range(len(layers))]
    if plan.get(table) == "free_full_weight":
        units.append(Unit("embed", take(table), 2))
    kept = [take(name) for name, style in plan.items() if style == "keep_full_weight"]
    units.append(Unit("head", sum(kept, ()), 1))
    names = left if tensor > 1 else {name for name, _ in model.named_parameters()}
    units.append(Unit("rest", tuple(left[name] for name in left if name in names), 1))
    return [unit for unit in units if unit.parameters]


def head_and_table(model: PreTrainedModel) -> list[str]:
    """Return the names of the output and of the input embeddings."""
    modules = {module: name for name, module in model.named_modules()}
    return [modules[model.get_output_embeddings()], modules[model.get_input_embeddings()]]
