"""Model and optimizer by the names of parameters, so that any layout reads what another wrote."""

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

# One entry for each parameter, whatever groups the optimizer has: layouts may group otherwise.
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)

State = dict[str, dict[str, object]]  # "model" or "optimizer" → name → value


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> State:
    state = {"model": get_model_state_dict(model)}
    if optimizer is not None:
        state["optimizer"] = get_optimizer_state_dict(model, optimizer, options=BY_NAME)
    return state


def put_state(state: State, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    set_model_state_dict(model, state["model"])
    if optimizer is not None:
        set_optimizer_state_dict(model, optimizer, state["optimizer"], options=BY_NAME)


def in_plain_shards(state: State) -> State:
    """The same with each shard one run of rows, which is what DCP takes every shard for.

    Fully sharded on top of tensor parallel, a process holds several runs of a parameter.
    """

    def plain(value):
        if not isinstance(value, DTensor):
            return value
        strided = [hasattr(placement, "split_factor") for placement in value.placements]
        places = zip(value.placements, strided, strict=True)
        return value.redistribute(placements=[Shard(p.dim) if s else p for p, s in places])

    return {part: {name: plain(v) for name, v in state[part].items()} for part in state}


def in_shards_of(state: State, wanted: State) -> State:
    """Undoes `in_plain_shards`."""

    def back(value, like):
        if not isinstance(value, DTensor):
            return value
        return value.redistribute(placements=like.placements)

    return {
        part: {name: back(value, wanted[part][name]) for name, value in state[part].items()}
        for part in state
    }


def copied(state: State) -> State:
    """The same in the memory of the processor, apart from what is trained."""

    def copy(value):
        is_tensor = isinstance(value, torch.Tensor)
        return value.detach().to("cpu", copy=True) if is_tensor else value

    return {part: {name: copy(value) for name, value in state[part].items()} for part in state}
