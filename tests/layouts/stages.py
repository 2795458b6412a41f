"""Training in the stages of a pipeline, by the schedules of torch.distributed.pipelining."""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from hf_tformer.scale.pipeline import Stage

MICROBATCHES = 4
SCHEDULES = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


def train_in_stages(layout, head, steps, folder):
    """As training.train(): each process holds a stage and sees all rows, two at a time."""
    rank, count = dist.get_rank(), dist.get_world_size()
    stage = Stage(head.model_class.from_pretrained(folder).train(), rank, count)
    ends = dist.new_group([0, count - 1])
    loss_fn = LossOfPart(head)
    schedule = SCHEDULES[layout.schedule](
        PipelineStage(stage, rank, count, torch.device("cpu")),
        MICROBATCHES,
        loss_fn=loss_fn,
        scale_grads=False,
    )
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.02, momentum=0.9)
    batches, trace = head.batches(), {"losses": [], "norms": []}
    for step in range(steps):
        batch = batches[step % len(batches)]
        loss_fn.whole = head.count(head.family, batch)
        if head.divides:
            batch = {**batch, "num_items_in_batch": loss_fn.whole}
        losses = []
        schedule.step(target=loss_fn.target(batch), losses=losses, return_outputs=False, **batch)
        stage.add_tied_gradients(ends)
        trace["losses"].append(sum(losses, torch.zeros(())).detach())
        trace["norms"].append(squared_norm(stage))
        optimizer.step()
        optimizer.zero_grad()
    trace = {name: torch.stack(values) for name, values in trace.items()}
    for values in trace.values():
        dist.all_reduce(values)
    return stage, {**trace, "norms": trace["norms"].sqrt()}


class LossOfPart:
    """What one part of a batch adds to the mean over all of it, `whole` labels."""

    def __init__(self, head):
        self.head, self.whole = head, None

    def target(self, batch):
        """What is divided into parts: the real tokens, or how many labels each row has."""
        if "body" in self.head.name:
            return batch["attention_mask"]
        rows = range(len(batch["input_ids"]))
        own = (
            {name: x[i : i + 1] for name, x in batch.items() if torch.is_tensor(x)} for i in rows
        )
        return torch.tensor([self.head.count(self.head.family, row) for row in own])

    def __call__(self, output, target):
        if "body" in self.head.name:
            real = output[target.bool()]
            return real.square().sum() / (self.whole * real.shape[-1])
        return output if self.head.divides else output * (target.sum() / self.whole)


def squared_norm(stage):
    """A tied table counts once, where tokens are looked up."""
    other = stage.tied if stage.is_last else None
    gradients = [p.grad for p in stage.parameters() if p is not other]
    return torch.stack([gradient.square().sum() for gradient in gradients]).sum()


def save_stages(stage, head, source, folder):
    """The parameters of all stages are those of the model in `source`."""
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, stage.model.state_dict())
    if dist.get_rank() == 0:
        model = head.model_class.from_pretrained(source)
        whole = {name: value for state in states for name, value in state.items()}
        assert whole.keys() | model.all_tied_weights_keys.keys() == model.state_dict().keys()
        model.save_pretrained(folder, state_dict=whole)
