"""Read and write model and optimizer by the names of parameters, independent of the layout."""

from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor, Shard

# One entry per parameter, whatever groups the optimizer has: other layouts may group otherwise.
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)

State = dict[str, dict[str, Any]]  # "model" or "optimizer" → name → tensor or number


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> State:
    state: State = {"model": get_model_state_dict(model)}
    if optimizer is not None:
        state["optimizer"] = get_optimizer_state_dict(model, optimizer, options=BY_NAME)
    return state


def put_state(state: State, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    set_model_state_dict(model, state["model"])
    if optimizer is not None:
        set_optimizer_state_dict(model, optimizer, state["optimizer"], options=BY_NAME)


def in_plain_shards(state: State) -> State:
    """Redistribute all shards so that each is one run of rows, as DCP expects.

    FSDP on top of tensor parallelism leaves a process with several runs of a parameter.
    """

    def plain(value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        placements = [
            Shard(p.dim) if hasattr(p, "split_factor") else p  # type: ignore[attr-defined]
            for p in value.placements  # a shard with a split_factor is strided
        ]
        return value.redistribute(placements=placements)

    return {part: {name: plain(v) for name, v in state[part].items()} for part in state}


def in_shards_of(state: State, wanted: State) -> State:
    """Undo `in_plain_shards`: redistribute all shards like those of `wanted`."""

    def back(value: Any, like: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        return value.redistribute(placements=like.placements)

    return {
        part: {name: back(value, wanted[part][name]) for name, value in state[part].items()}
        for part in state
    }


def copied(state: State) -> State:
    """Copy a state to the memory of the processor."""

    def copy(value: Any) -> Any:
        is_tensor = isinstance(value, torch.Tensor)
        return value.detach().to("cpu", copy=True) if is_tensor else value

    return {part: {name: copy(v) for name, v in state[part].items()} for part in state}
