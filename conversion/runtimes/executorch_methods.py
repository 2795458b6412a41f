"""The methods of an ExecuTorch program, as modules that torch.export traces.

Memory is planned ahead, so each open size has a largest value.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, StaticLayer

from ..engine.models import longest_sequence
from .graphs import Sizes

FORWARD, ENCODER, DECODER = "forward", "encoder", "text_decoder"  # the names of runners and Optimum
BATCH = 4  # sequences
READ, GENERATED = 512, 2048  # tokens of a sequence, if the model supports more
CHUNK = 128  # tokens that are computed at once beside a past


class Method(NamedTuple):
    """A traced module, its example, and the sizes that stay open."""

    module: nn.Module
    example: tuple[torch.Tensor, ...]
    open_sizes: tuple[Any, ...]  # of each argument

    def trace(self) -> ExportedProgram:
        return torch.export.export(
            self.module.eval(), self.example, dynamic_shapes=self.open_sizes, strict=False
        )


def methods(model: PreTrainedModel) -> dict[str, Method]:
    model.set_attn_implementation("sdpa")  # eager attention branches on open sizes
    if not model.can_generate():
        return {FORWARD: answering(model)}
    if model.config.is_encoder_decoder:
        return {ENCODER: encoding(model), DECODER: decoding(model)}
    return {FORWARD: generating(model)}


def largest_length(config: PreTrainedConfig, generates: bool) -> int:
    """Return how many tokens a sequence may have, generated ones included."""
    return min(longest_sequence(config), GENERATED if generates else READ)


def largest_chunk(config: PreTrainedConfig) -> int:
    return min(CHUNK, largest_length(config, True))


def inputs_of(config: PreTrainedConfig) -> list[str]:
    """Return the arguments of a program that does not generate."""
    types = ["token_type_ids"] if getattr(config, "type_vocab_size", 0) > 1 else []
    return ["input_ids", "attention_mask", *types]


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.long)


class Answer(nn.Module):
    """Compute the outputs of the head for a padded batch."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.names = inputs_of(model.config)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.model(**dict(zip(self.names, inputs, strict=True))).values())


def answering(model: PreTrainedModel) -> Method:
    model.config.use_cache = False  # a decoder with a task head would make one
    names = inputs_of(model.config)
    longest = largest_length(model.config, False)
    sizes = {0: Dim("batch", max=BATCH), 1: Dim("tokens", max=longest)}
    example = tuple(zeros(3, 5) + (name == "attention_mask") for name in names)
    return Method(Answer(model), example, ((sizes,) * len(names),))


class Past(nn.Module):
    """Keys and values that a program keeps from one call to the next."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        sizes = Sizes.of(config)
        self.length, self.layers = largest_length(config, True), sizes.layers
        for index in range(sizes.layers):
            keys, values = sizes.empty(1, self.length)
            self.register_buffer(f"keys_{index}", keys, persistent=False)
            self.register_buffer(f"values_{index}", values, persistent=False)

    def before(self, place: torch.Tensor) -> Cache:
        """Return the cache of what comes before a position; windows are applied by the mask."""
        layers = [StaticLayer(self.length) for _ in range(self.layers)]
        for index, layer in enumerate(layers):
            layer.keys = self.get_buffer(f"keys_{index}")
            layer.values = self.get_buffer(f"values_{index}")
            layer.cumulative_length = place.clone()  # counted up in place
            layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
            layer.is_initialized = True
        return Cache(layers=layers)


class Generate(nn.Module):
    """Compute logits for the next tokens of one sequence, given with their positions."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model, self.past = model, Past(model.config)

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        return self.model(
            input_ids,
            position_ids=cache_position[None],
            past_key_values=self.past.before(cache_position[0]),
            use_cache=True,
        ).logits


def generating(model: PreTrainedModel) -> Method:
    new = Dim("new", max=largest_chunk(model.config))
    return Method(Generate(model), (zeros(1, 3), torch.arange(3)), ({1: new}, {0: new}))


class Encode(nn.Module):
    """Compute the hidden states of one source."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids).last_hidden_state


def encoding(model: PreTrainedModel) -> Method:
    source = Dim("source", max=largest_length(model.config, False))
    return Method(Encode(model), (zeros(1, 5),), ({1: source},))


class Decode(nn.Module):
    """Compute logits like Generate, beside a source whose keys are computed at each call."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model, self.past = model, Past(model.config)

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        cache_position: torch.Tensor,
    ) -> torch.Tensor:
        past = EncoderDecoderCache(self.past.before(cache_position[0]), DynamicCache())
        return self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=(encoder_hidden_states,),
            past_key_values=past,
            use_cache=True,
        ).logits


def decoding(model: PreTrainedModel) -> Method:
    config = model.config
    new = Dim("new", max=largest_chunk(config))
    source = Dim("source", max=largest_length(config, False))
    example = (zeros(1, 3), torch.zeros(1, 5, config.hidden_size), torch.arange(3))
    return Method(Decode(model), example, ({1: new}, {1: source}, {0: new}))
