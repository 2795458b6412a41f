"""Checks of a configuration file that nobody has vouched for, where this package is installed.

A saved model carries the checks of its architecture (model/configuration_base.py). Here are those
that protect a reader of untrusted JSON: absurd sizes and numbers, keys that hide code or mean
another model, wrong types of transformers' own fields, deep nesting, attention kernels to download.
"""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from transformers.generation import GenerationConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from .model import configuration_base
from .model.configuration_base import SIZES, TformerConfig, wrong

DTYPES = ("float32", "float16", "bfloat16", "float64")

# The largest value a size may have; what passes each limit can still be too large together.
LARGEST = {
    "format_version": configuration_base.FORMAT_VERSION,
    **dict.fromkeys(SIZES, 10**5),
    **dict.fromkeys(("vocab_size", "source_vocab_size"), 10**8),
    **{"hidden_size": 10**6, "intermediate_size": 10**7},
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_hidden_layers"), 10**4),
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
TOKEN_IDS: tuple[str, ...] = ("pad_token_id", "bos_token_id", "eos_token_id")
TOKEN_IDS += ("decoder_start_token_id", "cls_token_id", "sep_token_id", "mask_token_id")

# Types of transformers' own fields. Its annotations are strings, which @strict skips.
TYPES = {
    **dict.fromkeys(("id2label", "label2id", "rope_parameters", "rope_scaling"), dict),
    **dict.fromkeys(("output_attentions", "output_hidden_states", "return_dict"), bool),
    **dict.fromkeys(("tie_last_hidden_states", "gradient_checkpointing"), bool),
    **dict.fromkeys(("transformers_version", "transformers_weights", "problem_type"), str),
    **{"architectures": list, "chunk_size_feed_forward": int, "is_encoder_decoder": bool},
}
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
ATTENTION = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
# Fields that transformers reads of other models: parts, other masks, other caches, mixed layers.
FOREIGN: tuple[str, ...] = ("text_config", "text_encoder", "decoder", "generator")
FOREIGN += ("fusion_config", "num_mtp_layers", "per_layer_config", "mlp_layer_types")
FOREIGN += ("mtp_layer_types", "kv_sharing_modes", "vision_feature_layer")
FOREIGN += ("vision_feature_select_strategy", "vision_aspect_ratio", "sliding_window")
FOREIGN += ("attention_chunk_size", "is_causal", "num_heads", "embed_dim", "distributed_config")
FOREIGN += ("configuration_files", "_experts_implementation")
EXPERTS = ("batched_mm", "grouped_mm")  # implementations that need no kernel of the Hub
OF_GENERATION = set(GenerationConfig().to_dict()) - {"output_attentions"}
DEEPEST = 20  # dicts and lists in one another


def check_new(config: TformerConfig, rope_parameters: object, kwargs: dict) -> None:
    """Check before anything is derived: nothing may be allocated for a wrong size."""
    configuration_base.refuse_later_format(config.format_version)
    check_attention(kwargs, may_download=True)
    check_types(config, {**vars(config), **kwargs, "rope_parameters": rope_parameters})
    check_keys(config, kwargs)
    check_sizes({**{name: getattr(config, name, None) for name in LARGEST}, **kwargs})


def check_values(config: TformerConfig) -> None:
    """Check each field for itself, before those that belong together are compared."""
    if config.is_encoder_decoder != type(config).is_encoder_decoder:
        raise wrong("is_encoder_decoder", config.is_encoder_decoder, "leave it unset")
    check_types(config, vars(config))
    check_sizes({name: getattr(config, name, None) for name in LARGEST})
    for name, limits in NUMBERS.items():
        if not isinstance(getattr(config, name, None), (bool, type(None))):
            check_number(name, getattr(config, name), *limits)
    for rope in config.ropes():
        check_rope(config, rope)


def check_together(config: TformerConfig) -> None:
    """Check fields that belong together, once each has a possible value."""
    count = approximate_parameter_count(config)
    if count > LARGEST_PARAMETER_COUNT:
        sizes = {name: getattr(config, name, None) for name in LARGEST}
        raise ValueError(
            f"these sizes make a model of about {count:.0e} parameters, more than any machine "
            f"holds (limit {LARGEST_PARAMETER_COUNT:.0e}): reduce {sizes}"
        )
    layout = (config.position_embedding_type, config.sinusoidal_layout)
    is_countable = config.pad_token_id is not None and config.hidden_size % 2 == 0
    if layout == ("sinusoidal", "fairseq") and not is_countable:
        raise ValueError(
            "sinusoidal_layout is 'fairseq', which counts from pad_token_id "
            f"({config.pad_token_id}) and pairs hidden_size ({config.hidden_size}): set the first "
            "and make the second even"
        )
    for name in TOKEN_IDS:
        check_token_ids(name, getattr(config, name, None), config.vocab_size)


def check_sizes(sizes: dict) -> None:
    for name, largest in LARGEST.items():
        value = sizes[name]
        if value is not None and not (type(value) is int and 1 <= value <= largest):
            raise wrong(name, value, f"choose a whole number between 1 and {largest}")


def check_number(name: str, value: Any, least: float, most: float) -> None:
    if type(value) not in (int, float) or not least <= value <= most:
        raise wrong(name, value, f"choose a number from {least:g} to {most:g}")


def check_token_ids(name: str, value: object, vocab_size: int) -> None:
    for token_id in value if isinstance(value, list) else [value]:
        is_id = type(token_id) is int and 0 <= token_id < vocab_size
        if not (is_id or token_id is None):
            remedy = f"choose an id from 0 to {vocab_size - 1}, or None"
            raise wrong(name, value, f"{remedy}, as vocab_size is {vocab_size}")


def check_rope(config: TformerConfig, rope: dict) -> None:
    if nested := [name for name, value in rope.items() if isinstance(value, dict)]:
        raise ValueError(f"rope_parameters holds {nested}: give one flat dict for every layer")
    for name, limits in ROPE_NUMBERS.items():
        if name in rope:
            check_number(f"rope_parameters[{name!r}]", rope[name], *limits)
    size = int(config.head_dim * rope.get("partial_rotary_factor", 1.0))
    for name in [name for name in ("short_factor", "long_factor") if name in rope]:
        if not isinstance(rope[name], list) or len(rope[name]) != size // 2:
            remedy = f"give a list of one number for each of {size // 2} pairs"
            raise wrong(f"rope_parameters[{name!r}]", rope[name], remedy)
        for factor in rope[name]:
            check_number(f"rope_parameters[{name!r}]", factor, 1e-6, 1e6)
    low, high = rope.get("low_freq_factor", 0), rope.get("high_freq_factor", 1e7)
    if low >= high:
        remedy = f"choose less than high_freq_factor ({high})"
        raise wrong("rope_parameters['low_freq_factor']", low, remedy)


def check_types(config: TformerConfig, values: Mapping[str, Any]) -> None:
    """Check transformers' own fields, and the depth of all: copying and saving recurse."""
    for name, kind in TYPES.items():
        value = values.get(name)
        if not isinstance(value, (kind, type(None))) or (kind, type(value)) == (int, bool):
            raise wrong(name, value, f"give a {kind.__name__}")
    for name, value in values.items():
        refuse_nesting(name, [value])
    for name in ("dtype", "torch_dtype"):
        if values.get(name) not in (None, *DTYPES, *(getattr(torch, name) for name in DTYPES)):
            raise wrong(name, values[name], f"choose one of {', '.join(DTYPES)}")
    if values.get("problem_type") not in (None, *PROBLEM_TYPES):
        raise wrong("problem_type", values["problem_type"], f"choose one of {PROBLEM_TYPES}")
    if config.return_dict is None:
        raise wrong("return_dict", None, "choose True or False")
    quantized = values.get("quantization_config")
    names = quantized if isinstance(quantized, dict) else dir(quantized)
    if quantized is not None and "quant_method" not in names:
        raise wrong("quantization_config", quantized, "give a dict with a quant_method")
    labels, most = config.id2label, LARGEST["num_labels"]
    if labels is not None and (
        len(labels) > most or {*map(str, labels)} != {*map(str, range(len(labels) or 1))}
    ):
        found = f"{len(labels)} labels, numbered {[*labels][:3]} and so on"
        raise ValueError(f"id2label has {found}: number them 0, 1, 2 and so on, at most {most}")


def check_keys(config: TformerConfig, kwargs: dict) -> None:
    """Refuse keys beside the fields that hide code or mean another model; others are the user's.

    Keys that are private to transformers, or belong in a generation_config.json, are removed.
    """
    kind = type(config)
    known = {getattr(parent, "model_type", None) for parent in kind.__mro__}
    if (model_type := kwargs.pop("model_type", None)) not in (None, *known):
        raise wrong("model_type", model_type, f"this class reads {config.model_type!r}")
    for name, value in list(kwargs.items()):
        # transformers removes such a prefix and sets the rest.
        is_prefixed = config.is_encoder_decoder and name.startswith(("encoder_", "decoder_"))
        if is_prefixed and name not in OF_GENERATION:
            raise wrong(name, value, "remove it, the other fields hold for both stacks")
        setter = getattr(getattr(kind, name, None), "fset", None)
        if hasattr(kind, name) and setter is None:
            raise wrong(name, value, "remove it, it would hide what the class has by that name")
        if name in FOREIGN and value is not None:
            raise wrong(name, value, "remove it, these models have no such thing")
        if name == "experts_implementation":
            check_experts(config, value)
        is_private = name.startswith("_") and name not in (*ATTENTION, "_name_or_path")
        is_absent = value is None and name in {*LARGEST, *FOREIGN}
        if is_private or is_absent or name in OF_GENERATION:
            del kwargs[name]


def check_experts(config: Any, name: object, in_file: bool = False) -> None:
    """Refuse what is no implementation of experts, or in a file one that downloads a kernel."""
    others = EXPERTS if in_file else ALL_EXPERTS_FUNCTIONS
    names = ("eager", *others) if hasattr(config, "num_experts") else ("eager",)
    if name not in (None, *names):
        raise wrong("experts_implementation", name, f"choose one of {', '.join(names)}")


def refuse_nesting(name: str, value: Any, left: int = DEEPEST) -> None:
    if not left:
        raise ValueError(f"{name} is nested more than {DEEPEST} deep: make it flatter")
    # transformers writes a name for whatever stands under dtype, in any dict.
    if isinstance(value, dict) and isinstance(value.get("dtype"), (list, float)):
        raise wrong(f"dtype in {name}", value["dtype"], "give the name of a dtype")
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, (dict, list, tuple)):
            refuse_nesting(name, inner, left - 1)


def check_attention(values: dict, may_download: bool) -> None:
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


def approximate_parameter_count(config: TformerConfig) -> int:
    """Count the weights of layers and tables, biases and norms aside."""
    size, is_pair = config.hidden_size, config.is_encoder_decoder
    head_dims = config.head_dim + getattr(config, "value_head_dim", config.head_dim)
    attention = size * head_dims * (config.num_attention_heads + config.num_key_value_heads)
    mlp = size * config.intermediate_size * (3 if config.mlp_type == "gated" else 2)
    tables = config.vocab_size * (1 if config.tie_word_embeddings else 2)
    tables += (config.num_labels or 0) + getattr(config, "type_vocab_size", 0)
    if not getattr(config, "share_encoder_decoder_embeddings", True):
        tables += config.source_vocab_size or config.vocab_size
    if config.position_embedding_type == "learned":
        tables += config.max_position_embeddings * (2 if is_pair else 1)
    layers = config.num_hidden_layers * (attention + mlp)
    if is_pair:
        layers += config.decoder_layers * (2 * attention + mlp)
    return layers + tables * size


def install(config_class: Any) -> None:
    """Add these checks to every configuration of ours that is read, made or saved."""
    read, derive = config_class.from_dict.__func__, config_class.__post_init__
    validate = config_class.validate_architecture

    @functools.wraps(read)
    def from_dict(cls: type, config_dict: dict, **kwargs: object) -> TformerConfig:
        check_attention(config_dict, may_download=False)
        check_experts(cls, config_dict.get("experts_implementation"), in_file=True)
        return read(cls, config_dict, **kwargs)

    @functools.wraps(derive)
    def checked_post_init(
        config: TformerConfig, rope_parameters: dict | None = None, **kwargs: object
    ) -> None:
        check_new(config, rope_parameters, kwargs)
        derive(config, rope_parameters=rope_parameters, **kwargs)

    @functools.wraps(validate)
    def validate_architecture(config: TformerConfig) -> None:
        check_values(config)
        validate(config)
        check_together(config)

    config_class.from_dict = classmethod(from_dict)
    config_class.__post_init__ = checked_post_init
    config_class.validate_architecture = validate_architecture


install(TformerConfig)
