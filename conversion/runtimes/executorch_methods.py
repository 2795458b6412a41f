"""The methods of an ExecuTorch program, as modules that torch.export traces.

Memory is planned ahead, so each open size has a largest value.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.cache_utils import Cache, StaticLayer

from ..engine.models import longest_text
from .graphs import Sizes

FORWARD, ENCODER, DECODER = "forward", "encoder", "text_decoder"  # as runners and Optimum say
ROWS = 4  # texts of a batch
READ, WRITTEN = 512, 2048  # tokens of a text, where the model knows more
PIECE = 128  # tokens that are read at once beside a past


class Method(NamedTuple):
    """What is traced, by which example, and which of its sizes are open."""

    module: nn.Module
    example: tuple[torch.Tensor, ...]
    open_sizes: tuple[dict[int, Dim], ...]

    def trace(self) -> ExportedProgram:
        return torch.export.export(
            self.module.eval(), self.example, dynamic_shapes=self.open_sizes, strict=False
        )


def methods(model: PreTrainedModel) -> dict[str, Method]:
    model.set_attn_implementation("sdpa")  # the other one asks more of a size than is known
    if not model.can_generate():
        return {FORWARD: answering(model)}
    if model.config.is_encoder_decoder:
        return {ENCODER: encoding(model), DECODER: decoding(model)}
    return {FORWARD: writing(model)}


def room(config, generates: bool) -> int:
    """Tokens that a text may have, those that are written included."""
    return min(longest_text(config), WRITTEN if generates else READ)


def piece(config) -> int:
    return min(PIECE, room(config, True))


def inputs_of(config) -> list[str]:
    """What a program that does not write is given."""
    types = ["token_type_ids"] if getattr(config, "type_vocab_size", 0) > 1 else []
    return ["input_ids", "attention_mask", *types]


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.long)


class Answer(nn.Module):
    """A padded batch to what the head says of it."""

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model = model
        self.names = inputs_of(model.config)

    def forward(self, *inputs):
        return tuple(self.model(**dict(zip(self.names, inputs, strict=True))).values())


def answering(model: PreTrainedModel) -> Method:
    model.config.use_cache = False  # a decoder with a task head would make one
    names = inputs_of(model.config)
    sizes = {0: Dim("rows", max=ROWS), 1: Dim("tokens", max=room(model.config, False))}
    example = tuple(zeros(3, 5) + (name == "attention_mask") for name in names)
    return Method(Answer(model), example, ((sizes,) * len(names),))


class Past(nn.Module):
    """Keys and values of what was read, which a program keeps from one call to the next."""

    def __init__(self, config):
        super().__init__()
        sizes = Sizes.of(config)
        self.length, self.layers = room(config, True), sizes.layers
        for index in range(sizes.layers):
            keys, values = sizes.empty(1, self.length)
            self.register_buffer(f"keys_{index}", keys, persistent=False)
            self.register_buffer(f"values_{index}", values, persistent=False)

    def before(self, place: torch.Tensor) -> Cache:
        """What was read before a place; a window is the mask's affair."""
        layers = [StaticLayer(self.length) for _ in range(self.layers)]
        for index, layer in enumerate(layers):
            layer.keys = self.get_buffer(f"keys_{index}")
            layer.values = self.get_buffer(f"values_{index}")
            layer.cumulative_length = place.clone()  # counted up in place
            layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
            layer.is_initialized = True
        return Cache(layers=layers)


class Write(nn.Module):
    """The next tokens of one text, and where they stand, to the logits of what follows each."""

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model, self.past = model, Past(model.config)

    def forward(self, input_ids, cache_position):
        return self.model(
            input_ids,
            position_ids=cache_position[None],
            past_key_values=self.past.before(cache_position[0]),
            use_cache=True,
        ).logits


def writing(model: PreTrainedModel) -> Method:
    new = Dim("new", max=piece(model.config))
    return Method(Write(model), (zeros(1, 3), torch.arange(3)), ({1: new}, {0: new}))


class Encode(nn.Module):
    """One source to its hidden states."""

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, input_ids):
        return self.encoder(input_ids).last_hidden_state


def encoding(model: PreTrainedModel) -> Method:
    source = Dim("source", max=room(model.config, False))
    return Method(Encode(model), (zeros(1, 5),), ({1: source},))


class Decode(nn.Module):
    """The same as Write beside the hidden states of a source, whose keys are computed each time."""

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model, self.past = model, Past(model.config)

    def forward(self, input_ids, encoder_hidden_states, cache_position):
        past = EncoderDecoderCache(self.past.before(cache_position[0]), DynamicCache())
        return self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=(encoder_hidden_states,),
            past_key_values=past,
            use_cache=True,
        ).logits


def decoding(model: PreTrainedModel) -> Method:
    config = model.config
    new, source = Dim("new", max=piece(config)), Dim("source", max=room(config, False))
    example = (zeros(1, 3), torch.zeros(1, 5, config.hidden_size), torch.arange(3))
    return Method(Decode(model), example, ({1: new}, {1: source}, {0: new}))
