"""Which part of each parameter a device holds, and which are gathered together.

Tensor parallel styles are those of the model's own plan. Fully sharded units are made as
transformers makes them: a unit for each layer and for the input table, which are freed after use
and gathered again for the way back; one for the last norm and the head, which is kept; and all the
rest. A tied table is gathered with the norm, and where its rows are cut as well, once more by the
rest under its other name.
"""

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .skeleton import stacks_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

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
    tensor_dimension: int | None  # along which its layer is cut, where it is

    def part(self, tensor: int) -> tuple[int, ...]:
        """The shape of the largest of so many parts."""
        shape = list(self.shape)
        if self.tensor_dimension is not None:
            shape[self.tensor_dimension] = math.ceil(shape[self.tensor_dimension] / tensor)
        return tuple(shape)

    def numbers(self, tensor: int = 1, shard: int = 1) -> int:
        """Of the largest part, which all others are padded to when they are gathered."""
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


def parameters_of(model: "PreTrainedModel") -> dict[str, Parameter]:
    """By name; what is tied stands under each of its names."""
    plan = model.tp_plan or {}
    return {
        name: Parameter(name, tuple(parameter.shape), cut_dimension(name, parameter.ndim, plan))
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }


def cut_dimension(name: str, dimensions: int, plan: dict[str, str]) -> int | None:
    module, _, _ = name.rpartition(".")
    dimension = DIMENSIONS.get(plan.get(re.sub(r"\.\d+\.", ".*.", module), ""))
    return None if dimension is None or dimension >= dimensions else dimension


def distinct_parameters(model: "PreTrainedModel") -> list[Parameter]:
    """Each once, however many names it has."""
    known = parameters_of(model)
    return [known[name] for name, _ in model.named_parameters()]


def units_of(model: "PreTrainedModel", tensor: int) -> list[Unit]:
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


def head_and_table(model: "PreTrainedModel") -> list[str]:
    """The names of the output and of the input embeddings."""
    modules = {module: name for name, module in model.named_modules()}
    return [modules[model.get_output_embeddings()], modules[model.get_input_embeddings()]]
