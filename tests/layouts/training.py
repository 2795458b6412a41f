"""A training run in a layout, and its trace: what one process and several have to agree in."""

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers.distributed import DistributedConfig

from .context import train_in_context
from .heads import by_name
from .stages import save_stages, train_in_stages

STEPS = 13  # twelve, and then the first batch again


def train(model, head, steps, batches, rows=slice(None), copies=1):
    """The loss and the norm of the gradient at each step, of all rows together.

    `copies` processes have other rows each, and average their gradients. With momentum a gradient
    counts in many later steps. Adam would divide it by its own size: a gradient that is nothing but
    rounding, as that of a bias before softmax, would move a weight as far as any other.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses, norms = [], []
    for step in range(steps):
        batch = batches[step % len(batches)]
        whole = head.count(head.family, batch)
        mine = {name: value[rows].contiguous() for name, value in batch.items()}
        loss = head.loss(model, mine, whole)
        (copies * loss).backward()
        losses.append(loss.detach())
        norms.append(gradient_norm(model))
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": torch.stack(losses), "norms": torch.stack(norms)}


def gradient_norm(model):
    gradients = [whole(parameter.grad) for parameter in model.parameters()]
    return torch.stack([gradient.norm() for gradient in gradients]).norm()


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train_cells(cells, steps, folders):
    """Each cell: the model in the head's folder is opened in a layout and trained; what came of it
    is written into a folder beside it."""
    for layout, name in cells:
        head, folder = by_name[name], folders[name]
        if layout.way == "stages":
            stage, trace = train_in_stages(layout, head, steps, folder)
            save_stages(stage, head, folder, folder / layout.name)
            write(trace, folder / layout.name)
            continue
        if layout.way == "context":
            model, trace = train_in_context(layout, head, steps, folder)
            save(model, folder / layout.name)
            write(trace, folder / layout.name)
            continue
        model = OPENERS[layout.way](layout, head, folder)
        rows = slice(dist.get_rank() // layout.tensor, None, layout.copies)
        trace = train(model.train(), head, steps, head.batches(), rows, layout.copies)
        dist.all_reduce(trace["losses"])
        trace["losses"] /= layout.tensor
        save(model, folder / layout.name)
        write(trace, folder / layout.name)


def write(trace, folder):
    if dist.get_rank() == 0:
        torch.save(trace, folder / "trace.pt")


def save(model, folder):
    """The model as an ordinary folder, by whoever knows the layout."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    if getattr(model.config, "distributed_config", None) is not None:
        return model.save_pretrained(folder)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if dist.get_rank() == 0:
        model.save_pretrained(folder, state_dict=state)


def replicate(layout, head, folder):
    return DistributedDataParallel(head.model_class.from_pretrained(folder))


def shard_directly(layout, head, folder):
    model = head.model_class.from_pretrained(folder)
    mesh = init_device_mesh("cpu", (layout.processes,))
    for module in model.modules():
        if type(module).__name__ in model._no_split_modules:
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def follow_plans(layout, head, folder):
    config = DistributedConfig(
        dp_replicate_size=layout.replicate, fsdp_size=layout.shard, tp_size=layout.tensor
    )
    return head.model_class.from_pretrained(folder, distributed_config=config)


OPENERS = {"replicate": replicate, "shard": shard_directly, "plans": follow_plans}
