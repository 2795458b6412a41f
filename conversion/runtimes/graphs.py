"""The graphs of a model for ONNX, OpenVINO and other runtimes, and the examples that trace them.

A decoder is one graph for prefill and decoding, as its past may be empty. An encoder-decoder has
two graphs. All other models are one graph without a past.
"""

import contextlib
import io
import logging as standard_logging
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn
from torch.export import Dim
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.utils import logging

from hf_tformer.model.cross_attention import CrossAttention

from ..engine.errors import ConversionError
from .runtime import Source

# The names of these files that the users of ONNX and OpenVINO know from Optimum.
MODEL, ENCODER, DECODER = "model", "encoder_model", "decoder_model"
# All are different, so that no two dimensions are taken for one.
ROWS, SOURCE, PAST, KNOWN, NEW = 3, 7, 5, 2, 4


class Part(NamedTuple):
    """One graph: the traced module and its example."""

    module: nn.Module
    example: dict[str, Any]

    def open_dimensions(self) -> dict[str, object]:
        """Return the dimensions that stay open: sequences and tokens."""
        return {
            name: {0: Dim.AUTO, 1: Dim.AUTO} if isinstance(value, torch.Tensor) else of_cache(value)
            for name, value in self.example.items()
        }


def of_cache(cache: Cache) -> list[dict[int, object]]:
    """Return the open dimensions of tensors [batch, heads, tokens, dim], as torch.export does."""
    pair = isinstance(cache, EncoderDecoderCache)
    caches = (cache.self_attention_cache, cache.cross_attention_cache) if pair else (cache,)
    return [{0: Dim.AUTO, 2: Dim.AUTO} for one in caches for _ in one.layers for _ in "kv"]


def parts(source: Source, keeps_source_keys: bool = True) -> dict[str, Part]:
    """Return the graphs of a model, by the names of their files.

    Without `keeps_source_keys` a decoder computes the keys of the source anew at each step.
    """
    model = source.model()
    if model._supports_sdpa:
        model.set_attn_implementation("sdpa")  # which runtimes recognise
    if model.config.is_encoder_decoder:
        return {ENCODER: encoder_part(model), DECODER: decoder_part(model, keeps_source_keys)}
    return {MODEL: generating_part(model) if source.generates else answering_part(model)}


def generating_part(model: PreTrainedModel) -> Part:
    mask = torch.ones(ROWS, PAST + NEW, dtype=torch.long)
    mask[0, :2] = 0  # padding on the left
    example = {
        "input_ids": torch.zeros(ROWS, NEW, dtype=torch.long),
        "attention_mask": mask,
        "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)[:, PAST:],
        "past_key_values": past_of(model, PAST),
    }
    return Part(model, example)


def answering_part(model: PreTrainedModel) -> Part:
    ids = torch.zeros(ROWS, SOURCE, dtype=torch.long)
    example = {"input_ids": ids, "attention_mask": padding_mask()}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        example["token_type_ids"] = ids.clone()
    return Part(model, example)


def encoder_part(model: PreTrainedModel) -> Part:
    ids = torch.zeros(ROWS, SOURCE, dtype=torch.long)
    return Part(model.get_encoder(), {"input_ids": ids, "attention_mask": padding_mask()})


class DecodingStep(nn.Module):
    """The decoder of an encoder-decoder, which computes missing keys of the source itself.

    A past of self-attention alone has no keys of the source. It is for runtimes that treat any past
    as that of self-attention: OpenVINO fuses attention and its past, with a key for each query.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.config = model.config

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor,
        past_key_values: Cache,
    ) -> dict[str, object]:
        with keeping_known_keys():
            outputs = self.model(
                decoder_input_ids=input_ids,
                encoder_outputs=(encoder_hidden_states,),
                attention_mask=encoder_attention_mask,
                past_key_values=past_key_values,
                use_cache=True,
            )
        return {"logits": outputs.logits, "past_key_values": past_key_values}  # with the new ones


def decoder_part(model: PreTrainedModel, keeps_source_keys: bool) -> Part:
    past: Cache = past_of(model, PAST)
    if keeps_source_keys:
        past = EncoderDecoderCache(past, past_of(model, KNOWN))
    example = {
        "input_ids": torch.zeros(ROWS, NEW, dtype=torch.long),
        "encoder_hidden_states": torch.zeros(ROWS, SOURCE, model.config.hidden_size),
        "encoder_attention_mask": padding_mask(),
        "past_key_values": past,
    }
    return Part(DecodingStep(model).eval(), example)


@contextlib.contextmanager
def keeping_known_keys() -> Iterator[None]:
    """Let cross-attention compute the keys of source tokens that its cache lacks.

    These are all tokens at the first step and none later: a graph cannot test which step it is.
    """

    def encoder_key_value(
        self: CrossAttention, encoder_hidden_states: torch.Tensor, past_key_values: Cache
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cache = past_key_values.cross_attention_cache
        keys = cache.layers[self.layer_idx].keys if self.layer_idx < len(cache.layers) else None
        known = 0 if keys is None else keys.shape[2]
        new = self.project_key_value(encoder_hidden_states[:, known:])
        return cache.update(*new, self.layer_idx)

    original = CrossAttention.encoder_key_value
    CrossAttention.encoder_key_value = encoder_key_value  # type: ignore[method-assign]
    try:
        yield
    finally:
        CrossAttention.encoder_key_value = original  # type: ignore[method-assign]


def padding_mask() -> torch.Tensor:
    mask = torch.ones(ROWS, SOURCE, dtype=torch.long)
    mask[0, 4:] = 0
    return mask


@dataclass(frozen=True)
class Sizes:
    """The sizes of keys and values."""

    layers: int
    kv_heads: int
    head_dim: int
    value_head_dim: int

    @classmethod
    def of(cls, config: PreTrainedConfig) -> "Sizes":
        head_dim = config.head_dim
        layers = config.decoder_layers if config.is_encoder_decoder else config.num_hidden_layers
        return cls(
            layers,
            config.num_key_value_heads,
            head_dim,
            getattr(config, "value_head_dim", head_dim),
        )

    def empty(self, batch: int, length: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        shape = batch, self.kv_heads, length
        return torch.zeros(*shape, self.head_dim), torch.zeros(*shape, self.value_head_dim)


def past_of(model: PreTrainedModel, length: int) -> DynamicCache:
    """Return a cache without windows, which the mask applies in a graph."""
    cache, sizes = DynamicCache(), Sizes.of(model.config)
    for index in range(sizes.layers):
        cache.update(*sizes.empty(ROWS, length), index)
    return cache


CACHED = re.compile(
    r"(?:(input|output)\.)?past_key_values(?:\.(self|cross)_attention_cache)?\.layers\.(\d+)\."
    r"(key|value)s"
)


def usual_name(name: str, is_output: bool = False) -> str:
    """Return Optimum's name of a key or a value, which the readers of such files expect."""
    found = CACHED.fullmatch(name)
    if not found:
        return name
    _, attention, layer, kind = found.groups()
    place = {"self": ".decoder", "cross": ".encoder", None: ""}[attention]
    return f"{'present' if is_output else 'past_key_values'}.{layer}{place}.{kind}"


def refuse_old_exporters() -> None:
    try:
        from transformers.exporters import ExportedModel  # noqa: F401
    except ImportError:
        raise ConversionError(
            f"transformers is {transformers.__version__}, whose exporters are too old for this "
            "export: install 5.23 or newer"
        ) from None


# Where torch's exporter remarks on each operator that an installed package lacks.
OF_OPERATORS = standard_logging.getLogger("torch.onnx._internal.exporter._registration")


def is_error(record: standard_logging.LogRecord) -> bool:
    return record.levelno >= standard_logging.ERROR


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence the exporters' remarks on operators, versions, progress and deprecation."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    OF_OPERATORS.addFilter(is_error)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        OF_OPERATORS.removeFilter(is_error)
        logging.set_verbosity(verbosity)
