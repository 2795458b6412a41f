"""Llama, Mistral, Qwen2 and Qwen3: one table, and what each of them fixes in the configuration."""

from collections.abc import Callable
from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import DECODER, Format, carry, plain_attention_scale, require
from ...engine.rotations import full_rotation
from ...engine.rules import Rule, linear

ATTENTION = "model.layers.{i}.self_attn"
MLP = "model.layers.{i}.mlp"
RULES = (
    Rule("model.embed_tokens.weight", "model.embed_tokens.weight"),
    Rule("model.layers.{i}.self_attn_norm.weight", "model.layers.{i}.input_layernorm.weight"),
    *(rule for x in "qkvo" for rule in linear(f"{ATTENTION}.{x}_proj", f"{ATTENTION}.{x}_proj")),
    *(Rule(f"{ATTENTION}.{x}_norm.weight", f"{ATTENTION}.{x}_norm.weight") for x in "qk"),
    Rule("model.layers.{i}.mlp_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"),
    *(
        rule
        for x in ("gate", "up", "down")
        for rule in linear(f"{MLP}.{x}_proj", f"{MLP}.{x}_proj")
    ),
    Rule("model.norm.weight", "model.norm.weight"),
    Rule("lm_head.weight", "lm_head.weight"),
)
IGNORED = {f"{ATTENTION}.rotary_emb.inv_freq": "computed from rope_parameters"}

SAME_FIELDS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "hidden_act",
    "rms_norm_eps",
    "attention_dropout",
    "tie_word_embeddings",
    "initializer_range",
    "use_cache",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)
ALL_OF_THEM = {
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    "norm_position": "pre",
    "final_norm": True,
    "embedding_norm": False,
    "mlp_type": "gated",
    "lm_head_bias": False,
    "logit_scale": 1.0,
    "scale_embedding": False,
}
# Values of ours that a format stands for without saying so.
FIXED = {
    "llama": {"qk_norm": False, "sliding_window": None},
    "mistral": {
        "qk_norm": False,
        "attention_bias": False,
        "attention_output_bias": False,
        "mlp_bias": False,
    },
    "qwen2": {
        "qk_norm": False,
        "attention_bias": True,
        "attention_output_bias": False,
        "mlp_bias": False,
    },
    "qwen3": {"qk_norm": True, "mlp_bias": False},
}
# What its relatives have in common with Llama, biases aside.
LIKE_LLAMA = {**ALL_OF_THEM, **FIXED["llama"]}
ONE_BIAS_FOR_FOUR = ("llama", "qwen3")  # their attention_bias is of q, k, v and o


def to_ours(theirs: Config, name: str) -> Fields:
    fields = {**carry(theirs, SAME_FIELDS), **FIXED[name]}
    fields["head_dim"] = head_size(theirs)
    fields["rope_parameters"] = full_rotation(theirs, name)
    if name == "llama":
        fields["mlp_bias"] = theirs.mlp_bias
    if name in ONE_BIAS_FOR_FOUR:
        fields["attention_bias"] = fields["attention_output_bias"] = theirs.attention_bias
    if name == "mistral":
        require(theirs, "Mistral", layer_types=None)  # transformers' Mistral does not read them
        fields["sliding_window"] = theirs.sliding_window
    if name.startswith("qwen"):
        fields.update(carry(theirs, ("sliding_window", "layer_types")))
    return fields


def to_theirs(ours: Config, name: str) -> Fields:
    reader = name.capitalize()
    require(ours, reader, **ALL_OF_THEM, **FIXED[name])
    plain_attention_scale(ours, reader)
    fields = carry(ours, (*SAME_FIELDS, "head_dim"))
    fields["rope_parameters"] = full_rotation(ours, reader)
    if name == "llama":
        fields["mlp_bias"] = ours.mlp_bias
    if name in ONE_BIAS_FOR_FOUR:
        require(ours, reader, attention_output_bias=ours.attention_bias)
        fields["attention_bias"] = ours.attention_bias
    if name == "mistral":
        require_one_kind_of_layer(ours, reader)
        fields["sliding_window"] = ours.sliding_window
    if name.startswith("qwen"):
        fields.update(windows_of_qwen(ours))
    return fields


def head_size(theirs: Config) -> int:
    """Their models read it from the file, also where their configuration has no such field."""
    return getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads


def require_one_kind_of_layer(ours: Config, reader: str) -> None:
    kinds = set(getattr(ours, "layer_types", ()))
    if len(kinds) > 1:
        raise ConversionError(
            f"layer_types holds {sorted(kinds)}, but {reader} has one kind of layer: "
            "export to qwen2 or qwen3, whose layers may differ"
        )


def layer_types_of(ours: Config) -> list[str]:
    """The kind of each layer, which ours names only where some layer slides."""
    return list(getattr(ours, "layer_types", ["full_attention"] * ours.num_hidden_layers))


def windows(ours: Config) -> Fields:
    """For formats that name the kind of each layer, and have a window even if no layer slides."""
    window = {"sliding_window": ours.sliding_window} if ours.sliding_window else {}
    return {"layer_types": layer_types_of(ours), **window}


def windows_of_qwen(ours: Config) -> Fields:
    layer_types = layer_types_of(ours)
    slides = "sliding_attention" in layer_types
    return {
        "use_sliding_window": slides,
        "sliding_window": ours.sliding_window,
        "layer_types": layer_types,
        "max_window_layers": layer_types.index("sliding_attention") if slides else len(layer_types),
    }


def llama_format(
    name: str,
    class_name: str,
    to_ours: Callable,
    to_theirs: Callable,
    rules: tuple[Rule, ...] = RULES,
    released: str = "",
) -> Format:
    classes = (f"{class_name}Config", f"{class_name}ForCausalLM")
    return Format(name, rules, to_ours, to_theirs, classes, DECODER, IGNORED, released=released)


RELEASED = {
    "Llama": "Llama 1, 2, 3, 3.1, 3.2, 3.3, Code Llama, Vicuna, TinyLlama, SmolLM, SmolLM2, Yi",
    "Mistral": "Mistral 7B, Mistral Nemo, Mistral Small 3, Codestral, Zephyr",
    "Qwen2": "Qwen1.5, Qwen2, Qwen2.5, QwQ",
    "Qwen3": "Qwen3, without mixtures of experts",
}
FORMATS = tuple(
    llama_format(
        name.lower(),
        name,
        partial(to_ours, name=name.lower()),
        partial(to_theirs, name=name.lower()),
        released=released,
    )
    for name, released in RELEASED.items()
)
