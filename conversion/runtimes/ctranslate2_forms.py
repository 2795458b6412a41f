"""Which model of transformers a model of ours becomes, so that a reader of CTranslate2 takes it.

A reader knows fewer values than the format that it reads, and mostly does not say so: what a form
needs was found by random configurations. Where it merely looks for words of transformers 4, or
where CTranslate2 has a place for a value, ctranslate2.py says them.
"""

from copy import copy
from dataclasses import dataclass, field, replace

from ..engine.aliases import Config
from ..engine.errors import ConversionError, UnexpressibleError
from ..engine.format import ENCODER, Format, choose, layer_types_of, plain_attention_scale
from ..engine.registry import FORMATS, format_for
from ..engine.rotations import one_rotation
from ..engine.rules import as_tuple
from ..engine.translation import translate
from .ctranslate2_running import ends_of
from .runtime import Source

TITLE = "CTranslate2"
PLAIN_ROPE = ("default",)
LONGER = ("default", "linear")
LLAMA3_LENGTH = 8192  # of the texts that the numbers of llama3 were made for; theirs is a constant
FIXED_THETA = 10000.0
ACTIVATIONS = ("gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish")
TANH = ("gelu_new", "gelu_pytorch_tanh")  # one function
# Of BART's kin: CTranslate2 has a place for the first, and tables hold any of the others.
WRITTEN = {"layer_norm_eps": 1e-5, "lm_head_bias": True}
SINUSOIDS = {**WRITTEN, "sinusoidal_layout": "halves"}


@dataclass(frozen=True)
class Form:
    """A format, the class of CTranslate2 that reads it, and the values of ours that it reads right.

    `written` are fields that the format fixes and CTranslate2 does not: the format is told these
    values, and those of ours go straight into the files.
    """

    name: str
    reader: str
    needs: dict[str, tuple] = field(default_factory=dict)
    rope_types: tuple[str, ...] = ()
    theta: float | None = None  # the only one
    needs_whole_heads: bool = False
    written: dict[str, object] = field(default_factory=dict)

    def refuse(self, ours: Config) -> None:
        choose(ours, TITLE, **self.needs)
        if "attention_scale" not in self.needs:
            plain_attention_scale(ours, TITLE)
        even = ours.hidden_size / ours.num_attention_heads
        is_lone = ours.is_encoder_decoder and ours.num_attention_heads == 1
        if (self.needs_whole_heads or is_lone) and ours.head_dim != even:
            raise UnexpressibleError("head_dim", ours.head_dim, TITLE, (even,))
        if self.rope_types:
            self.refuse_rotation(one_rotation(ours, TITLE))

    def refuse_rotation(self, rope: dict) -> None:
        known = {"rope_type": self.rope_types}
        if self.theta:
            known["rope_theta"] = (self.theta,)
        if rope["rope_type"] == "llama3":
            known["original_max_position_embeddings"] = (LLAMA3_LENGTH,)
        for name, values in known.items():
            if rope[name] not in values:
                raise UnexpressibleError(f"rope_parameters[{name!r}]", rope[name], TITLE, values)

    def format_of(self, source: Source) -> Format:
        """The format as it is, or one that is told the values that are written past it."""
        form = format_for(source.folder, self.name)
        if not self.written:
            return form
        told = replace(
            form,
            config_to_theirs=lambda ours: form.config_to_theirs(saying(ours, self.written)),
        )
        return told if source.config.lm_head_bias else without_bias_of_head(told)


def without_bias_of_head(form: Format) -> Format:
    """The file of theirs lacks it, and their model fills it with zeros."""
    return replace(
        form,
        rules=tuple(rule for rule in form.rules if "lm_head.bias" not in as_tuple(rule.ours)),
        ignored={**form.ignored, "final_logits_bias": "zeros"},
    )


def saying(config: Config, fields: dict[str, object]) -> Config:
    """A copy with other values."""
    config = copy(config)
    for name, value in fields.items():
        setattr(config, name, value)
    return config


GATED = {"hidden_act": ("silu", "swish")}
PLAIN = {"hidden_act": ACTIVATIONS}
FORMS = (
    Form("llama", "LlamaLoader", GATED, (*LONGER, "llama3"), needs_whole_heads=True),
    Form("mistral", "MistralLoader", GATED, LONGER),
    Form("qwen3", "Qwen3Loader", GATED, LONGER),
    Form("qwen2", "Qwen2Loader", GATED, LONGER, needs_whole_heads=True),
    Form("gemma", "GemmaLoader", {"hidden_act": TANH, "attention_bias": (False,)}, PLAIN_ROPE),
    Form(
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
    Form("gpt2", "GPT2Loader", PLAIN),
    Form("gpt_bigcode", "GPTBigCodeMHALoader", {**PLAIN, "num_key_value_heads": (1,)}),
    Form("opt", "OPTLoader", PLAIN, written={"layer_norm_eps": 1e-5}),
    Form("gptj", "GPTJLoader", PLAIN, PLAIN_ROPE, FIXED_THETA),
    Form(
        "gpt_neox",
        "GPTNeoXLoader",
        {**PLAIN, "attention_bias": (True,)},
        PLAIN_ROPE,
        FIXED_THETA,
    ),
    Form("bloom", "BloomLoader"),
    Form("mpt", "MPTLoader", {"tie_word_embeddings": (True,)}),
    Form("bart", "BartLoader", PLAIN, written=WRITTEN),
    Form("mbart", "BartLoader", PLAIN, written=WRITTEN),
    Form("marian", "BartLoader", {**PLAIN, "source_vocab_size": (None,)}, written=SINUSOIDS),
    Form("pegasus", "BartLoader", PLAIN, written=SINUSOIDS),
    *(
        Form(name, f"{name.upper()}Loader", {**PLAIN, "attention_scale": (1.0,)})
        for name in ("t5", "mt5", "umt5")
    ),
    Form("bert", "RobertaLoader", PLAIN),
    Form("distilbert", "DistilBertLoader", PLAIN, written={"layer_norm_eps": 1e-12}),
)
# By these a model is told which form it comes nearest to.
STRUCTURE = ("position_embedding_type", "score_bias", "norm_type", "norm_position", "mlp_type")
STRUCTURE += ("parallel_residual", "embedding_norm", "qk_norm", "attention_bias", "final_norm")


def form_for(source: Source) -> tuple[Form, Format]:
    """The first form that says all of a model, or the reason of the one that comes nearest."""
    refuse_in_every_form(source)
    family = source.config.model_type
    fitting = [f for f in FORMS if FORMATS[f.name].our_classes.config_class.model_type == family]
    reasons = {}
    for form in fitting:
        try:
            found = form.format_of(source)
            translate(source.config, found, to_ours=False, dtype=None)
            form.refuse(source.config)
        except ConversionError as error:
            reasons[form.name] = error
        else:
            return form, found
    raise reasons[max(fitting, key=lambda form: likeness(form, source.config)).name]


def refuse_in_every_form(source: Source) -> None:
    ours = source.config
    if source.library.is_encoder and source.library.model_name != ENCODER.model_name:
        raise ConversionError(
            f"architectures is {source.library.model_name!r}, but {TITLE} has encoders without a "
            "head and models that write: save model.base_model of an encoder, and export that"
        )
    if source.generates and not ends_of(source):
        raise ConversionError(
            f"eos_token_id is None, and {TITLE} ends each text at a token: name one in "
            "generation_config.json"
        )
    if not ours.is_encoder_decoder and "sliding_attention" in layer_types_of(ours):
        raise ConversionError(
            f"sliding_window is {ours.sliding_window}, and {TITLE} reads no longer prompt right: "
            "set it to None if no text is longer than the window"
        )


def likeness(form: Form, ours: Config) -> int:
    """How much of its structure a model shares with those that a form was made for."""
    theirs = FORMATS[form.name]
    usual = translate(theirs.theirs.config_class(), theirs, to_ours=True, dtype=None)
    pairs = ((getattr(usual, name, None), getattr(ours, name, None)) for name in STRUCTURE)
    return sum(first == second for first, second in pairs)
