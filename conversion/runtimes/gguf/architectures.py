"""The architectures of llama.cpp that can run our models.

A format translates the configuration and names the tensors. The values that llama.cpp fixes beyond
that are given here, as values of our own fields.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hf_tformer.model.layer_types import is_by_layer_type

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError, UnexpressibleError
from ...engine.format import (
    BIASES,
    ENCODER,
    layer_types_of,
    plain_attention_scale,
    require,
    require_one_of,
)
from ...engine.transforms import Transform
from . import reading_fields as reading
from .layouts import BEHIND_PADDING, BIGCODE, CONV1D, NEIGHBOURS, OFFSET, TOGETHER, SmallerLogits

SILU = ("silu", "swish")
GELU = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu")  # it approximates the last one
PLAIN = ("default", "linear", "yarn")  # types of rotation
FULL, SLIDING = "full_attention", "sliding_attention"


Refuse = Callable[[Config, str], None]


@dataclass(frozen=True)
class Architecture:
    """A graph of llama.cpp. `format` is the name of the format with its tensor names.

    `acts`, `rotations` and `choices` are the values of our fields that it supports, `refuses` are
    functions that check the rest. `more` returns the fields of its file that not all files have,
    `reads` our fields from those, and `holds` our fields from the shapes of its tensors. `layout`
    maps the end of a name to the transform whose `inverse` makes llama.cpp's tensor. A graph that
    `needs_head` cannot read it from the embeddings, so a tied head is written twice.
    """

    name: str
    format: str
    acts: tuple[str, ...] = SILU
    rotations: tuple[str, ...] = PLAIN
    choices: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    refuses: tuple[Refuse, ...] = ()
    more: Callable[[Config], Fields] = lambda ours: {}
    reads: Callable[[Fields], Fields] = lambda told: {}
    holds: Callable[[reading.Shapes], Fields] = lambda shapes: {}
    layout: Mapping[str, Transform] = field(default_factory=dict)
    needs_head: bool = False


def no_windows(ours: Config, format_name: str) -> None:
    """Refuse windows that are shorter than the longest sequence."""
    if getattr(ours, "sliding_window", None) and ours.sliding_window < ours.max_position_embeddings:
        raise UnexpressibleError("sliding_window", ours.sliding_window, format_name, (None,))


def square_projections(ours: Config, format_name: str) -> None:
    require(ours, format_name, head_dim=ours.hidden_size / ours.num_attention_heads)


def windows(period: int) -> Refuse:
    """Refuse other windows than those in all layers but the last of each period, or none."""

    def refuse_others(ours: Config, format_name: str) -> None:
        kinds = layer_types_of(ours)
        usual = [FULL if (i + 1) % period == 0 else SLIDING for i in range(len(kinds))]
        if SLIDING in kinds and kinds != usual:
            raise UnexpressibleError("layer_types", kinds, format_name, (usual,))
        if SLIDING in kinds and FULL not in kinds:  # llama.cpp aborts
            raise ConversionError(
                f"num_hidden_layers is {len(kinds)}, but {format_name} needs a layer without a "
                f"window, which is each {period}th: only {period} layers or more convert"
            )

    return refuse_others


def one_frequency(ours: Config, format_name: str) -> None:
    """Refuse other frequencies in layers with windows, which the graph ignores."""
    rope = getattr(ours, "rope_parameters", {})
    thetas = {one["rope_theta"] for one in rope.values()} if is_by_layer_type(rope) else set()
    if len(thetas) > 1:
        raise ConversionError(
            f"rope_theta is one of {sorted(thetas)} in the kinds of layers, but {format_name} has "
            "one for all: only one number converts"
        )


def window(ours: Config) -> Fields:
    slides = SLIDING in layer_types_of(ours)
    return {"attention.sliding_window": ours.sliding_window} if slides else {}


def no_rotation_in_each_fourth(ours: Config, format_name: str) -> None:
    usual = [int((i + 1) % 4 != 0) for i in range(ours.num_hidden_layers)]
    if (ours.no_rope_layers or [1] * len(usual)) != usual:
        raise UnexpressibleError("no_rope_layers", ours.no_rope_layers, format_name, (usual,))


def scale_of_gemma(layers_of_27b: int) -> Refuse:
    """Refuse other attention scales than Gemma's."""

    def refuse_others(ours: Config, format_name: str) -> None:
        sizes = ours.hidden_size, ours.num_attention_heads, ours.head_dim
        scale = reading.gemmas_scale(ours.num_hidden_layers, layers_of_27b, *sizes)
        if abs((ours.attention_scale or ours.head_dim**-0.5) - scale) > 1e-9:
            raise UnexpressibleError("attention_scale", ours.attention_scale, format_name, (scale,))

    return refuse_others


def not_64_layers(ours: Config, format_name: str) -> None:
    """Refuse 64 layers, in which the graph assumes windows."""
    if ours.num_hidden_layers == 64:
        raise UnexpressibleError("num_hidden_layers", 64, format_name, (63, 65))


def of_cohere(ours: Config) -> Fields:
    return {"logit_scale": float(ours.logit_scale), **window(ours)}


def of_gemma2(ours: Config) -> Fields:
    return {**window(ours), **{name: float(getattr(ours, name) or 0) for name in reading.CAPS}}


def of_granite(ours: Config) -> Fields:
    root = ours.hidden_size**0.5
    return {
        "attention.scale": float(ours.attention_scale or ours.head_dim**-0.5),
        "embedding_scale": float(
            root if ours.scale_embedding is True else ours.scale_embedding or 1
        ),
        "residual_scale": float(ours.residual_multiplier),
        "logit_scale": 1 / ours.logit_scale,
    }


def of_t5(ours: Config) -> Fields:
    return {
        "decoder_block_count": ours.decoder_layers,
        "attention.relative_buckets_count": 32,
        "decoder_start_token_id": ours.decoder_start_token_id,
    }


def act_of_t5(ours: Config, format_name: str) -> None:
    require_one_of(ours, format_name, hidden_act=GELU if ours.mlp_type == "gated" else ("relu",))


def shorter_decoder(ours: Config, format_name: str) -> None:
    """Refuse more layers than the encoder has, for which llama.cpp allocates memory."""
    if ours.decoder_layers > ours.encoder_layers:
        deepest = range(1, ours.encoder_layers + 1)
        raise UnexpressibleError("decoder_layers", ours.decoder_layers, format_name, (*deepest,))


def no_head(ours: Config, format_name: str) -> None:
    """Refuse heads of encoders, which llama.cpp does not compute."""
    named = ours.architectures
    if named != [ENCODER.model_name]:
        raise UnexpressibleError("architectures", named, format_name, ([ENCODER.model_name],))


NO_BIASES = dict.fromkeys(BIASES, (False,))
ALL_BIASES = dict.fromkeys(BIASES, (True,))
NO_OUTPUT_BIAS = {"attention_output_bias": (False,)}
QKV_BIASES = {**NO_OUTPUT_BIAS, "mlp_bias": (False,)}  # or none
TIED = {**NO_OUTPUT_BIAS, "tie_word_embeddings": (True,)}
PLAIN_SCORES = (no_windows, plain_attention_scale)
SQUARE = (*PLAIN_SCORES, square_projections)


def later_gemma(name: str, form: str, period: int, layers_of_27b: int) -> Architecture:
    """Return Gemma 2 or 3, in which each `period`-th layer has no window."""
    return Architecture(
        name,
        form,
        GELU,
        choices=TIED,
        refuses=(windows(period), scale_of_gemma(layers_of_27b)),
        more=of_gemma2,
        reads=reading.gemma(layers_of_27b),
        layout=OFFSET,
    )


LLAMA = Architecture(
    "llama", "llama", rotations=(*PLAIN, "llama3"), refuses=PLAIN_SCORES, layout=NEIGHBOURS
)
ARCHITECTURES = (
    LLAMA,
    replace(LLAMA, format="mistral"),
    Architecture("qwen2", "qwen2", refuses=SQUARE),
    Architecture("qwen3", "qwen3", choices=NO_OUTPUT_BIAS, refuses=PLAIN_SCORES),
    Architecture("gpt2", "gpt2", GELU, refuses=PLAIN_SCORES, layout=CONV1D),
    Architecture("gemma", "gemma", GELU, choices=TIED, refuses=PLAIN_SCORES, layout=OFFSET),
    later_gemma("gemma2", "gemma2", period=2, layers_of_27b=46),
    later_gemma("gemma3", "gemma3_text", period=6, layers_of_27b=62),
    Architecture("olmo", "olmo", choices=NO_OUTPUT_BIAS, refuses=SQUARE, layout=NEIGHBOURS),
    Architecture("olmo2", "olmo2", choices=NO_OUTPUT_BIAS, refuses=SQUARE, needs_head=True),
    Architecture(
        "olmo2",
        "olmo3",
        choices=NO_OUTPUT_BIAS,
        refuses=(windows(4), plain_attention_scale, square_projections, one_frequency),
        more=window,
        reads=reading.window,
        needs_head=True,
    ),
    Architecture("phi3", "phi3", refuses=SQUARE),
    Architecture("phi2", "phi", GELU, refuses=SQUARE, needs_head=True),
    Architecture("stablelm", "stablelm", refuses=PLAIN_SCORES, needs_head=True),
    Architecture("starcoder2", "starcoder2", GELU, choices=ALL_BIASES, refuses=SQUARE),
    Architecture("starcoder", "gpt_bigcode", GELU, refuses=PLAIN_SCORES, layout=BIGCODE),
    Architecture(
        "gptneox",
        "gpt_neox",
        GELU,
        refuses=PLAIN_SCORES,
        more=lambda ours: {"use_parallel_residual": ours.parallel_residual is not None},
        reads=reading.neox,
        layout=TOGETHER,
        needs_head=True,
    ),
    Architecture(
        "falcon",
        "falcon",
        GELU,
        choices={**NO_BIASES, "parallel_residual": ("shared", "own")},
        refuses=PLAIN_SCORES,
        layout=TOGETHER,
    ),
    Architecture(
        "mpt",
        "mpt",
        GELU,
        refuses=PLAIN_SCORES,
        more=lambda ours: {"attention.max_alibi_bias": 8.0},
    ),
    Architecture("bloom", "bloom", GELU, refuses=PLAIN_SCORES, layout=TOGETHER),
    Architecture(
        "command-r", "cohere", choices=TIED, refuses=SQUARE, more=of_cohere, reads=reading.cohere
    ),
    Architecture(
        "cohere2",
        "cohere2",
        choices=TIED,
        refuses=(windows(4), plain_attention_scale, square_projections),
        more=of_cohere,
        reads=reading.cohere,
    ),
    Architecture(
        "granite",
        "granite",
        refuses=(no_windows,),
        more=of_granite,
        reads=reading.granite,
        layout=NEIGHBOURS,
    ),
    Architecture(
        "smollm3",
        "smollm3",
        choices=QKV_BIASES,
        refuses=(*PLAIN_SCORES, no_rotation_in_each_fourth),
        layout=NEIGHBOURS,
    ),
    Architecture("exaone4", "exaone4", refuses=(*SQUARE, not_64_layers), reads=reading.no_window),
    Architecture("chatglm", "glm", refuses=SQUARE),
    Architecture("glm4", "glm4", refuses=PLAIN_SCORES),
    Architecture(
        "arcee", "arcee", ("relu2",), choices=NO_BIASES, refuses=PLAIN_SCORES, layout=NEIGHBOURS
    ),
    Architecture("seed_oss", "seed_oss", choices=QKV_BIASES, refuses=PLAIN_SCORES),
    Architecture("ernie4_5", "ernie4_5", refuses=PLAIN_SCORES),
    *(
        Architecture(
            "t5",
            format,
            (*GELU, "relu"),
            refuses=(act_of_t5, shorter_decoder),
            more=of_t5,
            reads=reading.t5(is_scaled=format == "umt5"),
            holds=reading.held_by_t5,
            layout={"decoder.final_layer_norm.weight": SmallerLogits()},
        )
        for format in ("t5", "umt5")
    ),
    *(
        Architecture(
            "bert",
            format,
            GELU,
            refuses=(no_head, *PLAIN_SCORES),
            more=lambda ours: {"attention.causal": False},
            holds=reading.held_by_bert,
            layout=layout,
        )
        for format, layout in (("bert", {}), ("roberta", BEHIND_PADDING), ("distilbert", {}))
    ),
)
