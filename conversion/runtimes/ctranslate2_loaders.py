"""The loaders of CTranslate2, and the format of transformers through which each reads our model.

A loader supports fewer values than the format that it reads, and mostly ignores the others without
an error: the supported values were found by random configurations. Names of transformers 4 that a
loader expects, and values that CTranslate2 has a place for, are set in ctranslate2.py.
"""

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ..engine.aliases import Config, Fields
from ..engine.errors import ConversionError, UnexpressibleError
from ..engine.format import ENCODER, Format, layer_types_of, plain_attention_scale, require_one_of
from ..engine.registry import FORMATS, format_for
from ..engine.rotations import one_rotation
from ..engine.rules import Rule, omitted
from ..engine.translation import translate
from .ctranslate2_running import end_tokens
from .runtime import Source

TITLE = "CTranslate2"
PLAIN_ROPE = ("default",)
LONGER = ("default", "linear")
LLAMA3_LENGTH = 8192  # the original length of the llama3 rotation, a constant in CTranslate2
FIXED_THETA = 10000.0
ACTIVATIONS = ("gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish")
TANH = ("gelu_new", "gelu_pytorch_tanh")  # one function
# For BART's kin: CTranslate2 stores the epsilon, and tables hold any of the others.
WRITTEN = {"layer_norm_eps": 1e-5, "lm_head_bias": True}
SINUSOIDS = {**WRITTEN, "sinusoidal_layout": "halves"}


@dataclass(frozen=True)
class Loader:
    """A loader of CTranslate2: the format that it reads, its class, and the supported values.

    `written` are fields that the format fixes and CTranslate2 does not: the format gets these
    values, and ours are written straight into the files.
    """

    name: str
    reader: str
    needs: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    rope_types: tuple[str, ...] = ()
    theta: float | None = None  # the only supported one
    needs_whole_heads: bool = False
    written: Fields = field(default_factory=dict)

    def refuse(self, ours: Config) -> None:
        require_one_of(ours, TITLE, **self.needs)
        if "attention_scale" not in self.needs:
            plain_attention_scale(ours, TITLE)
        even = ours.hidden_size / ours.num_attention_heads
        has_one_head = ours.is_encoder_decoder and ours.num_attention_heads == 1
        if (self.needs_whole_heads or has_one_head) and ours.head_dim != even:
            raise UnexpressibleError("head_dim", ours.head_dim, TITLE, (even,))
        if self.rope_types:
            self.refuse_rotation(one_rotation(ours, TITLE))

    def refuse_rotation(self, rope: Fields) -> None:
        supported: dict[str, tuple[Any, ...]] = {"rope_type": self.rope_types}
        if self.theta:
            supported["rope_theta"] = (self.theta,)
        if rope["rope_type"] == "llama3":
            supported["original_max_position_embeddings"] = (LLAMA3_LENGTH,)
        for name, values in supported.items():
            if rope[name] not in values:
                raise UnexpressibleError(f"rope_parameters[{name!r}]", rope[name], TITLE, values)

    def format_of(self, source: Source) -> Format:
        """Return the format, given the values that it fixes instead of ours."""
        format = cast(Format, format_for(source.folder, self.name))
        if not self.written:
            return format
        fixed = replace(
            format,
            config_to_theirs=lambda ours: format.config_to_theirs(changed(ours, self.written)),
        )
        return fixed if source.config.lm_head_bias else without_bias_of_head(fixed)


def without_bias_of_head(format: Format) -> Format:
    """Return the format for a file without that bias, which their model fills with zeros."""
    return replace(
        format,
        rules=omitted(cast(tuple[Rule, ...], format.rules), "lm_head.bias"),
        ignored={**format.ignored, "final_logits_bias": "zeros"},
    )


def changed(config: Config, fields: Fields) -> Config:
    """Return a copy with other values."""
    config = copy(config)
    for name, value in fields.items():
        setattr(config, name, value)
    return config


GATED = {"hidden_act": ("silu", "swish")}
PLAIN = {"hidden_act": ACTIVATIONS}
LOADERS = (
    Loader("llama", "LlamaLoader", GATED, (*LONGER, "llama3"), needs_whole_heads=True),
    Loader("mistral", "MistralLoader", GATED, LONGER),
    Loader("qwen3", "Qwen3Loader", GATED, LONGER),
    Loader("qwen2", "Qwen2Loader", GATED, LONGER, needs_whole_heads=True),
    Loader("gemma", "GemmaLoader", {"hidden_act": TANH, "attention_bias": (False,)}, PLAIN_ROPE),
    Loader(
        "gemma2",
        "Gemma2Loader",
        {
            "hidden_act": (*TANH, "gelu"),
            "attention_bias": (False,),
            "attn_logit_softcapping": (None,),
            "final_logit_softcapping": (None,),
        },
        PLAIN_ROPE,
    ),
    Loader("gpt2", "GPT2Loader", PLAIN),
    Loader("gpt_bigcode", "GPTBigCodeMHALoader", {**PLAIN, "num_key_value_heads": (1,)}),
    Loader("opt", "OPTLoader", PLAIN, written={"layer_norm_eps": 1e-5}),
    Loader("gptj", "GPTJLoader", PLAIN, PLAIN_ROPE, FIXED_THETA),
    Loader(
        "gpt_neox", "GPTNeoXLoader", {**PLAIN, "attention_bias": (True,)}, PLAIN_ROPE, FIXED_THETA
    ),
    Loader("bloom", "BloomLoader"),
    Loader("mpt", "MPTLoader", {"tie_word_embeddings": (True,)}),
    Loader("bart", "BartLoader", PLAIN, written=WRITTEN),
    Loader("mbart", "BartLoader", PLAIN, written=WRITTEN),
    Loader("marian", "BartLoader", {**PLAIN, "source_vocab_size": (None,)}, written=SINUSOIDS),
    Loader("pegasus", "BartLoader", PLAIN, written=SINUSOIDS),
    *(
        Loader(name, f"{name.upper()}Loader", {**PLAIN, "attention_scale": (1.0,)})
        for name in ("t5", "mt5", "umt5")
    ),
    Loader("bert", "RobertaLoader", PLAIN),
    Loader("distilbert", "DistilBertLoader", PLAIN, written={"layer_norm_eps": 1e-12}),
)
# Fields by which the nearest loader is found.
STRUCTURE = (
    *("position_embedding_type", "score_bias", "norm_type", "norm_position", "mlp_type"),
    *("parallel_residual", "embedding_norm", "qk_norm", "attention_bias", "final_norm"),
)


def loader_for(source: Source) -> tuple[Loader, Format]:
    """Return the first loader that supports a model, or raise the refusal of the nearest one."""
    refuse_in_every_format(source)
    family = source.config.model_type
    fitting = [x for x in LOADERS if FORMATS[x.name].our_classes.config_class.model_type == family]
    reasons = {}
    for loader in fitting:
        try:
            format = loader.format_of(source)
            translate(source.config, format, to_ours=False, dtype=None)
            loader.refuse(source.config)
        except ConversionError as error:
            reasons[loader.name] = error
        else:
            return loader, format
    raise reasons[max(fitting, key=lambda loader: likeness(loader, source.config)).name]


def refuse_in_every_format(source: Source) -> None:
    ours = source.config
    if source.library.is_encoder and source.library.model_name != ENCODER.model_name:
        raise ConversionError(
            f"architectures is {source.library.model_name!r}, but {TITLE} has encoders without a "
            "head and models that generate: save model.base_model of an encoder, and export that"
        )
    if source.library.is_encoder and ours.score_bias:
        raise ConversionError(
            f"score_bias is {ours.score_bias!r}, the relative distances of MPNet, which no encoder "
            f"of {TITLE} has: export to onnx or openvino"
        )
    if source.generates and not end_tokens(source):
        raise ConversionError(
            f"eos_token_id is None, and {TITLE} ends each sequence at a token: name one in "
            "generation_config.json"
        )
    if not ours.is_encoder_decoder and "sliding_attention" in layer_types_of(ours):
        raise ConversionError(
            f"sliding_window is {ours.sliding_window}, and {TITLE} prefills no longer prompt "
            "right: set it to None if no sequence is longer than the window"
        )


def likeness(loader: Loader, ours: Config) -> int:
    """Return how many of these fields a model shares with the usual model of a loader."""
    theirs = FORMATS[loader.name]
    usual = translate(theirs.theirs.config_class(), theirs, to_ours=True, dtype=None)
    pairs = ((getattr(usual, name, None), getattr(ours, name, None)) for name in STRUCTURE)
    return sum(first == second for first, second in pairs)
