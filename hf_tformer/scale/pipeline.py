"""A decoder or an encoder cut into stages, for the schedules of torch.distributed.pipelining.

    input_ids → stage 0 → hidden states → stage 1 → … → last stage → loss, or logits

A stage is the model itself without what the other stages have. So every head works, parameters keep
their names, and the parameters of all stages together are those of the model.
"""

import torch.distributed as dist
from torch import nn

from .sharding import take_embedded


class Received(nn.Module):
    """Stands where the table of embeddings was: gives what the stage before has sent."""

    def __init__(self):
        super().__init__()
        self.states = None

    def forward(self, input_ids):
        return self.states


class Stage(nn.Module):
    """Stage `index` of `count`; `model` is cut in place.

    Each stage is given the input ids, the mask and the positions, the last one labels, too:

        stage = Stage(model, rank, count)
        place = torch.distributed.pipelining.PipelineStage(stage, rank, count, device)
        schedule = Schedule1F1B(place, 8, loss_fn=lambda loss, _: loss, scale_grads=False)
        schedule.step(target=labels, input_ids=ids, labels=labels, num_items_in_batch=count)

    `num_items_in_batch` counts the labels of the whole batch: each part of it divides by them, and
    gradients are not to be scaled again.
    """

    def __init__(self, model: nn.Module, index: int, count: int):
        super().__init__()
        check_cut(model, index, count)
        self.model = model
        self.body = [model.base_model]  # in a list: its parameters keep one name
        self.is_first, self.is_last = index == 0, index == count - 1
        self.tied = find_tied_table(model, self.is_first, self.is_last)
        body, layers = model.base_model, len(model.base_model.layers)
        kept = range(layers * index // count, layers * (index + 1) // count)
        for number in set(range(layers)) - set(kept):
            delattr(body.layers, str(number))
        body.score_bias.layers = len(kept)
        if not self.is_first:
            body.embed_tokens = Received()
            take_embedded(body)
        if not self.is_last:
            body.norm = nn.Identity()
            leave_out_head(model)

    def forward(self, states=None, *, input_ids, attention_mask=None, position_ids=None, **kwargs):
        """`states` are the hidden states of the stage before; `kwargs` are for the head alone."""
        (body,) = self.body
        inputs = {"attention_mask": attention_mask, "position_ids": position_ids}
        if not self.is_first:
            body.embed_tokens.states = states
        if self.is_last:
            return self.model(input_ids=input_ids, **inputs, **kwargs)[0]
        return body(input_ids=input_ids, **inputs)[0]

    def add_tied_gradients(self, group=None):
        """After a step of the schedule, before the optimizer's: the first stage looks tokens up in
        a table that the last may use as its head. `group` holds the processes of these two."""
        if self.tied is not None:
            dist.all_reduce(self.tied.grad, group=group)


def check_cut(model, index, count):
    config, name = model.config, type(model).__name__
    if config.is_encoder_decoder:
        raise ValueError(
            f"{name} has two stacks, and every layer of the second reads what the first wrote, "
            "which no stage hands on: cut a decoder or an encoder, or shard this one by fsdp_size"
        )
    if getattr(config, "score_bias", None) == "relative":
        raise ValueError(
            "score_bias is 'relative', whose table belongs to all layers and so to no stage: "
            "shard this model by fsdp_size"
        )
    layers = config.num_hidden_layers
    if not 0 <= index < count <= layers:
        raise ValueError(
            f"stage {index} of {count} does not exist for {layers} layers: choose from 1 to "
            f"{layers} stages, counted from 0"
        )


def find_tied_table(model, is_first, is_last):
    """The parameter that this stage has in common with another, if there is one."""
    if is_first == is_last or not model.all_tied_weights_keys:
        return None
    table = model.get_input_embeddings() if is_first else model.get_output_embeddings()
    return table.weight


def leave_out_head(model):
    """All that stands beside the body, if the model is more than that."""
    body = model.base_model
    for name, child in [] if model is body else list(model.named_children()):
        if child is not body:
            delattr(model, name)
