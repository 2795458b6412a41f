# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""What all configurations refuse, and in which words.

Every check raises a ValueError that names the field, the value and the remedy. The checks run when
a configuration is made, when it is loaded from a file with overrides, and once more before it is
saved; which keys there may be is asked only when it is made. Types of our fields are checked by
`@strict`, which needs real annotations: a postponed-annotations import would switch it off.
"""

import torch
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig, strict
from transformers.generation import GenerationConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# Raised when older code would compute something else from a new checkpoint. Code reads every format
# up to its own and refuses later ones; a difference without a new number does not matter.
FORMAT_VERSION = 1

CHOICES = {
    "position_embedding_type": ("rotary", "learned", "sinusoidal", "none"),
    "norm_type": ("rmsnorm", "rmsnorm_offset", "layernorm", "layernorm_unbiased"),
    "norm_position": ("pre", "post", "inside", "both"),
    "parallel_residual": ("own", "shared"),
    "qk_norm": (True, False, "all"),
    "mlp_type": ("gated", "plain"),
    "initializer": ("normal", "xavier_uniform"),
    "sinusoidal_layout": ("interleaved", "halves", "fairseq"),
    "hidden_act": tuple(ACT2FN),
    "problem_type": ("regression", "single_label_classification", "multi_label_classification"),
}
DTYPES = ("float32", "float16", "bfloat16", "float64")

# The largest value a field may have; what passes each limit can still be too large together.
LARGEST = {
    "format_version": FORMAT_VERSION,
    **dict.fromkeys(("vocab_size", "source_vocab_size"), 10**8),
    **{"hidden_size": 10**6, "intermediate_size": 10**7},
    # num_hidden_layers last, which is another name for encoder_layers
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_hidden_layers"), 10**4),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads"), 10**5),
    **dict.fromkeys(("head_dim", "value_head_dim", "num_labels"), 10**5),
    **dict.fromkeys(("max_position_embeddings", "sliding_window"), 10**9),
}
LARGEST_PARAMETER_COUNT = 10**13
# The smallest and the largest value; between them every formula stays finite.
NUMBERS = {
    **dict.fromkeys(("attention_dropout", "dropout", "label_smoothing"), (0, 0.999999)),
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps"), (1e-30, 1)),
    **dict.fromkeys(("attention_scale", "logit_scale", "residual_multiplier"), (1e-6, 1e6)),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), (1e-3, 1e6)),
    "scale_embedding": (1e-6, 1e6),
    **{"initializer_range": (1e-30, 1e3), "z_loss": (0, 1e6)},
}
ROPE_NUMBERS = {
    "rope_theta": (1.01, 1e15),
    "partial_rotary_factor": (1e-6, 1.0),
    "original_max_position_embeddings": (2, 1e9),
    **dict.fromkeys(("factor", "attention_factor", "beta_fast", "beta_slow"), (1e-6, 1e6)),
    **dict.fromkeys(("low_freq_factor", "high_freq_factor"), (1e-6, 1e6)),
    **dict.fromkeys(("mscale", "mscale_all_dim"), (0, 1e6)),
}
TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
TOKEN_IDS += ("cls_token_id", "sep_token_id", "mask_token_id")

# What transformers reads beside our fields. Its own annotations are strings, which @strict skips.
KINDS = {
    **dict.fromkeys(("id2label", "label2id", "rope_parameters", "rope_scaling"), dict),
    **dict.fromkeys(("output_attentions", "output_hidden_states", "return_dict"), bool),
    **dict.fromkeys(("tie_last_hidden_states", "gradient_checkpointing"), bool),
    **dict.fromkeys(("transformers_version", "transformers_weights", "problem_type"), str),
    **{"architectures": list, "chunk_size_feed_forward": int, "is_encoder_decoder": bool},
}
ATTENTION = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
# What it reads of other models: parts, other masks, other caches, layers that differ.
FOREIGN = ("text_config", "text_encoder", "decoder", "generator", "fusion_config", "num_mtp_layers")
FOREIGN += ("per_layer_config", "mlp_layer_types", "mtp_layer_types", "kv_sharing_modes")
FOREIGN += ("vision_feature_layer", "vision_feature_select_strategy", "vision_aspect_ratio")
FOREIGN += ("sliding_window", "attention_chunk_size", "is_causal", "num_heads")
FOREIGN += ("embed_dim", "distributed_config", "configuration_files", "experts_implementation")
FOREIGN += ("_experts_implementation",)
OF_GENERATION = set(GenerationConfig().to_dict()) - {"output_attentions"}
DEEPEST = 20  # dicts and lists in one another


@strict
class TformerConfig(PreTrainedConfig):
    """The checks and the loading rules that the families share; each has its own fields."""

    keys_to_ignore_at_inference = ["past_key_values"]
    ignore_keys_at_rope_validation = {"partial_rotary_factor"}

    own_choices = {}  # as CHOICES, of one family

    format_version: int = FORMAT_VERSION

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """Reads a file's dict; overrides come in before anything is derived or checked."""
        check_attention(config_dict, may_download=False)
        refuse_later_format(config_dict.get("format_version", 1))
        # Not dtype: the base class resolves "auto".
        names = {*cls.__dataclass_fields__, "layer_types", "rope_parameters"} - {"dtype"}
        overrides = {name: kwargs.pop(name) for name in list(kwargs) if name in names}
        config_dict = {**config_dict, **overrides}
        rope = config_dict.get("rope_parameters") or {}
        if "rope_theta" in kwargs and isinstance(rope, dict):  # the old name of what stands there
            config_dict["rope_parameters"] = {**rope, "rope_theta": kwargs.pop("rope_theta")}
        return super().from_dict(config_dict, **kwargs)

    def __post_init__(self, rope_parameters=None, layer_types=None, **kwargs):
        # Before anything is derived: nothing may be divided by, or allocated for, a wrong size.
        refuse_later_format(self.format_version)
        check_attention(kwargs, may_download=True)
        self.check_kinds({**vars(self), **kwargs, "rope_parameters": rope_parameters})
        self.check_keys(kwargs)
        self.check_sizes(**kwargs)
        self.format_version = FORMAT_VERSION  # what is read is written in today's format
        heads = self.num_attention_heads
        if self.num_key_value_heads is None:
            self.num_key_value_heads = heads
        if self.head_dim is None and self.hidden_size % heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) is not divisible by num_attention_heads "
                f"({heads}): choose other sizes, or set head_dim"
            )
        if self.head_dim is None:
            self.head_dim = self.hidden_size // heads
        if self.final_norm is None:
            self.final_norm = self.norm_position != "post"
        self.take_layer_types(layer_types)
        if self.position_embedding_type != "rotary":
            for name in ("rope_theta", "rope_scaling", "partial_rotary_factor"):
                kwargs.pop(name, None)
        else:  # only here: where the attribute exists, tools expect rotary positions
            rope = kwargs.pop("rope_scaling", None) or rope_parameters or {}
            self.rope_parameters = self.ropes_in_use(rope)
        super().__post_init__(**kwargs)

    def take_layer_types(self, layer_types):
        if layer_types is not None:
            raise wrong("layer_types", layer_types, "remove it, all layers here are alike")

    def ropes_in_use(self, rope):
        """A copy: the base class fills it in, and the caller may make another of it."""
        return dict(rope)

    def ropes(self):
        """Every set of rotary parameters."""
        rope = getattr(self, "rope_parameters", None)
        return [] if rope is None else [rope]

    def check_kinds(self, values):
        """What transformers reads, and how deep anything is: copying and saving recurse."""
        for name, kind in KINDS.items():
            value = values.get(name)
            if not isinstance(value, (kind, type(None))) or (kind, type(value)) == (int, bool):
                raise wrong(name, value, f"give a {kind.__name__}")
        for name, value in values.items():
            refuse_nesting(name, [value])
        for name in ("dtype", "torch_dtype"):
            if values.get(name) not in (None, *DTYPES, *(getattr(torch, name) for name in DTYPES)):
                raise wrong(name, values[name], f"choose one of {', '.join(DTYPES)}")
        if self.return_dict is None:
            raise wrong("return_dict", None, "choose True or False")
        quantized = values.get("quantization_config")
        names = quantized if isinstance(quantized, dict) else dir(quantized)
        if quantized is not None and "quant_method" not in names:
            raise wrong("quantization_config", quantized, "give a dict with a quant_method")
        labels, most = self.id2label, LARGEST["num_labels"]
        if labels is not None and (
            len(labels) > most or {*map(str, labels)} != {*map(str, range(len(labels) or 1))}
        ):
            found = f"{len(labels)} labels, numbered {[*labels][:3]} and so on"
            raise ValueError(f"id2label has {found}: number them 0, 1, 2 and so on, at most {most}")

    def check_keys(self, kwargs):
        """Keys beside the fields are the user's own, unless they hide code or mean another model.

        What is private to transformers, or belongs into a generation_config.json, is left out.
        """
        known = {getattr(parent, "model_type", None) for parent in type(self).__mro__}
        if (model_type := kwargs.pop("model_type", None)) not in (None, *known):
            raise wrong("model_type", model_type, f"this class reads {self.model_type!r}")
        for name, value in list(kwargs.items()):
            # transformers takes such a prefix away and sets what is left.
            stacked = self.is_encoder_decoder and name.startswith(("encoder_", "decoder_"))
            if stacked and name not in OF_GENERATION:
                raise wrong(name, value, "remove it, the other fields hold for both stacks")
            setter = getattr(getattr(type(self), name, None), "fset", None)
            if hasattr(type(self), name) and setter is None:
                raise wrong(name, value, "remove it, it would hide what the class has by that name")
            if name in FOREIGN and value is not None:
                raise wrong(name, value, "remove it, these models have no such thing")
            is_private = name.startswith("_") and name not in (*ATTENTION, "_name_or_path")
            is_absent = value is None and name in {*LARGEST, *FOREIGN}
            if is_private or is_absent or name in OF_GENERATION:
                del kwargs[name]

    def validate_architecture(self):
        super().validate_architecture()
        self.check_kinds(vars(self))
        self.check_sizes()
        for name, choices in {**CHOICES, **self.own_choices}.items():
            if getattr(self, name, None) not in (*choices, None):  # None: where @strict lets it be
                known = ", ".join(map(str, choices))
                raise wrong(name, getattr(self, name), f"choose one of {known}")
        for name, limits in NUMBERS.items():
            if not isinstance(getattr(self, name, None), (bool, type(None))):
                check_number(name, getattr(self, name), *limits)
        for rope in self.ropes():
            self.check_rotary(rope)
        count = self.approximate_parameter_count()
        if count > LARGEST_PARAMETER_COUNT:
            sizes = {name: getattr(self, name, None) for name in list(LARGEST)[1:]}
            raise ValueError(
                f"these sizes make a model of about {count:.0e} parameters, more than any machine "
                f"holds (limit {LARGEST_PARAMETER_COUNT:.0e}): reduce {sizes}"
            )
        for name in TOKEN_IDS:
            value = getattr(self, name, None)
            for token_id in value if isinstance(value, list) else [value]:
                is_id = type(token_id) is int and 0 <= token_id < self.vocab_size
                if not (is_id or token_id is None):
                    remedy = f"choose an id from 0 to {self.vocab_size - 1}, or None"
                    raise wrong(name, value, f"{remedy}, as vocab_size is {self.vocab_size}")
        layout = (self.position_embedding_type, self.sinusoidal_layout)
        is_countable = self.pad_token_id is not None and self.hidden_size % 2 == 0
        if layout == ("sinusoidal", "fairseq") and not is_countable:
            raise ValueError(
                "sinusoidal_layout is 'fairseq', which counts from pad_token_id "
                f"({self.pad_token_id}) and pairs hidden_size ({self.hidden_size}): set the first "
                "and make the second even"
            )
        if self.is_encoder_decoder != type(self).is_encoder_decoder:
            raise wrong("is_encoder_decoder", self.is_encoder_decoder, "leave it unset")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) is no multiple of "
                f"num_key_value_heads ({self.num_key_value_heads}): choose others, or leave it None"
            )

    def check_sizes(self, **sizes):
        for name, largest in LARGEST.items():
            value = sizes.get(name, getattr(self, name, None))
            if value is not None and not (type(value) is int and 1 <= value <= largest):
                raise wrong(name, value, f"choose a whole number between 1 and {largest}")

    def check_rotary(self, rope):
        known = ("default", *ROPE_INIT_FUNCTIONS)
        label, rope_type = "rope_parameters['rope_type']", rope.get("rope_type")
        if rope_type not in known:
            raise wrong(label, rope_type, f"choose one of {', '.join(known)}")
        if nested := [name for name, value in rope.items() if isinstance(value, dict)]:
            raise ValueError(f"rope_parameters holds {nested}: give one flat dict for every layer")
        for name, limits in ROPE_NUMBERS.items():
            if name in rope:
                check_number(f"rope_parameters[{name!r}]", rope[name], *limits)
        fraction = rope.get("partial_rotary_factor", 1.0)
        rotated = int(self.head_dim * fraction)
        # The proportional type leaves its pairs at their places in the head and turns some of them.
        turned = self.head_dim if rope_type == "proportional" else rotated
        least = 4 if rope_type == "dynamic" else 2  # the dynamic formula divides by rotated - 2
        if turned % 2 or not least <= rotated <= self.head_dim:
            raise ValueError(
                f"rope_parameters['rope_type'] is {rope_type!r}, which turns pairs, but head_dim "
                f"({self.head_dim}) x partial_rotary_factor ({fraction}) gives {turned} "
                f"dimensions: choose an even head_dim, with at least {least}"
            )
        for name in [name for name in ("short_factor", "long_factor") if name in rope]:
            field, factors, pairs = f"rope_parameters[{name!r}]", rope[name], rotated // 2
            if not isinstance(factors, list) or len(factors) != pairs:
                raise wrong(field, factors, f"give a list of one number for each of {pairs} pairs")
            for factor in factors:
                check_number(field, factor, 1e-6, 1e6)
        low, high = rope.get("low_freq_factor", 0), rope.get("high_freq_factor", 1e7)
        if low >= high:
            remedy = f"choose less than high_freq_factor ({high})"
            raise wrong("rope_parameters['low_freq_factor']", low, remedy)
        try:
            self.validate_rope()
        except KeyError as error:
            raise wrong(label, rope_type, error.args[0]) from error

    def attention_parameters(self):
        """Weights of one attention layer, biases left out."""
        dims = self.head_dim + getattr(self, "value_head_dim", self.head_dim)
        return self.hidden_size * dims * (self.num_attention_heads + self.num_key_value_heads)

    def mlp_parameters(self):
        return self.hidden_size * self.intermediate_size * (3 if self.mlp_type == "gated" else 2)


def wrong(name, value, remedy):
    return ValueError(f"{name} is {value!r}: {remedy}")


def check_number(name, value, least, most):
    if type(value) not in (int, float) or not least <= value <= most:
        raise wrong(name, value, f"choose a number from {least:g} to {most:g}")


def refuse_nesting(name, value, left=DEEPEST):
    if not left:
        raise ValueError(f"{name} is nested more than {DEEPEST} deep: make it flatter")
    # transformers writes a name for whatever stands under dtype, in any dict.
    if isinstance(value, dict) and isinstance(value.get("dtype"), (list, float)):
        raise wrong(f"dtype in {name}", value["dtype"], "give the name of a dtype")
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, (dict, list, tuple)):
            refuse_nesting(name, inner, left - 1)


def refuse_later_format(version):
    """A checkpoint of a later format may mean something that this code does not know."""
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ValueError(
            f"format_version is {version}, but this code reads checkpoints up to {FORMAT_VERSION}: "
            "upgrade with `pip install --upgrade hf-tformer`, or load it where the package is not "
            "installed, with trust_remote_code=True, to run the code that came with it"
        )


def check_attention(values, may_download):
    """A file may not choose attention code: a '/' or ':' in a name means to download and run it."""
    for key in ATTENTION:
        value = values.get(key)
        for name in value.values() if isinstance(value, dict) else [value]:
            if not isinstance(name, (str, type(None))):
                raise wrong(key, value, "give the name of a backend, such as 'sdpa'")
            if not may_download and {"/", ":"} & {*(name or "")}:
                raise ValueError(
                    f"{key} is {value!r} in the configuration file, which would download and run "
                    "code from there: remove the key, and pass attn_implementation=... to "
                    "from_pretrained if you trust that kernel"
                )
