"""Divide a decoder or an encoder into stages, for the schedules of torch.distributed.pipelining.

    input_ids → stage 0 → hidden states → stage 1 → … → last stage → loss, or logits

A stage is the model itself without the modules of the other stages. So every head works, parameters
keep their names, and the parameters of all stages together are those of the model.
"""

import torch
import torch.distributed as dist
from torch import nn
from transformers import PreTrainedModel

from .sharding import take_embedded


class Received(nn.Module):
    """Takes the place of the embeddings, and returns the hidden states of the stage before."""

    def __init__(self) -> None:
        super().__init__()
        self.states: torch.Tensor | None = None

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor | None:
        return self.states


class Stage(nn.Module):
    """Stage `index` of `count` of a model, which is modified in place.

    Each stage takes the input ids, the mask and the positions, the last one also the labels:

        stage = Stage(model, rank, count)
        place = torch.distributed.pipelining.PipelineStage(stage, rank, count, device)
        schedule = Schedule1F1B(place, 8, loss_fn=lambda loss, _: loss, scale_grads=False)
        schedule.step(target=labels, input_ids=ids, labels=labels, num_items_in_batch=count)

    `num_items_in_batch` is the number of labels of the whole batch, by which each microbatch
    divides its loss, so gradients must not be scaled again.
    """

    def __init__(self, model: PreTrainedModel, index: int, count: int):
        super().__init__()
        check_stages(model, index, count)
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
            remove_head(model)

    def forward(
        self,
        states: torch.Tensor | None = None,
        *,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **kwargs: object,
    ) -> torch.Tensor:
        """Compute the layers of this stage.

        `states` are the hidden states of the stage before; only the head receives `kwargs`.
        """
        (body,) = self.body
        inputs = {"attention_mask": attention_mask, "position_ids": position_ids}
        if not self.is_first:
            body.embed_tokens.states = states
        if self.is_last:
            return self.model(input_ids=input_ids, **inputs, **kwargs)[0]
        return body(input_ids=input_ids, **inputs)[0]

    def add_tied_gradients(self, group: dist.ProcessGroup | None = None) -> None:
        """Sum the gradients of the input table and a head that is tied to it.

        Call it after a step of the schedule and before that of the optimizer, with the `group` of
        the processes of the first and the last stage.
        """
        if self.tied is not None:
            dist.all_reduce(self.tied.grad, group=group)


def check_stages(model: PreTrainedModel, index: int, count: int) -> None:
    config, name = model.config, type(model).__name__
    if config.is_encoder_decoder:
        raise ValueError(
            f"{name} has two stacks, and every layer of the second reads the output of the first, "
            "which no stage passes on: divide a decoder or an encoder, or shard this one by "
            "fsdp_size"
        )
    if getattr(config, "score_bias", None) == "relative":
        raise ValueError(
            "score_bias is 'relative', whose table all layers share, so it belongs to no stage: "
            "shard this model by fsdp_size"
        )
    layers = config.num_hidden_layers
    if not 0 <= index < count <= layers:
        raise ValueError(
            f"stage {index} of {count} does not exist for {layers} layers: choose from 1 to "
            f"{layers} stages, counted from 0"
        )


def find_tied_table(model: PreTrainedModel, is_first: bool, is_last: bool) -> nn.Parameter | None:
    """Return the parameter that this stage shares with another, if there is one."""
    if is_first == is_last or not model.all_tied_weights_keys:
        return None
    table = model.get_input_embeddings() if is_first else model.get_output_embeddings()
    return table.weight


def remove_head(model: PreTrainedModel) -> None:
    """Remove all modules of a model but its base model."""
    body = model.base_model
    for name, child in [] if model is body else list(model.named_children()):
        if child is not body:
            delattr(model, name)
