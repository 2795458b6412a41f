"""StableLM: Llama with LayerNorm, where a part of each head is turned.

Attention may stand beside the MLP behind one norm. StableLM-2-12B has a norm for each head besides.
"""

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import (
    DECODER,
    Format,
    carry,
    choose,
    inverted,
    plain_attention_scale,
    require,
)
from ...engine.rules import Rule
from .llama import ALL_OF_THEM, IGNORED, SAME_FIELDS
from .llama import RULES as LLAMA_RULES

LAYER = "model.layers.{i}"
RULES = (
    *LLAMA_RULES,
    Rule(f"{LAYER}.self_attn_norm.bias", f"{LAYER}.input_layernorm.bias"),
    Rule(f"{LAYER}.mlp_norm.bias", f"{LAYER}.post_attention_layernorm.bias"),
    Rule("model.norm.bias", "model.norm.bias"),
)

# theirs → ours
FIELDS = {
    **{name: name for name in SAME_FIELDS if name != "rms_norm_eps"},
    "layer_norm_eps": "layer_norm_eps",
    "use_qkv_bias": "attention_bias",
    "hidden_dropout": "dropout",
}
FIXED = {
    **ALL_OF_THEM,
    "norm_type": "layernorm",
    "qk_norm": False,
    "attention_output_bias": False,
    "mlp_bias": False,
    "sliding_window": None,
}


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", qk_layernorm=False)
    refuse_other_head_sizes(theirs)
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "parallel_residual": "shared" if theirs.use_parallel_residual else None,
        "rope_parameters": part_of_heads(theirs, "StableLM"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "StableLM", **FIXED, head_dim=ours.hidden_size / ours.num_attention_heads)
    choose(ours, "StableLM", parallel_residual=("shared", None))
    plain_attention_scale(ours, "StableLM")
    return {
        **carry(ours, inverted(FIELDS)),
        "use_parallel_residual": ours.parallel_residual == "shared",
        **said_twice(part_of_heads(ours, "StableLM")),
    }


def refuse_other_head_sizes(theirs: Config) -> None:
    """There is no field of theirs for it, and half of the model reads it where a file has one."""
    if getattr(theirs, "head_dim", None) is not None:
        require(theirs, "hf_tformer", head_dim=theirs.hidden_size // theirs.num_attention_heads)


def part_of_heads(config: Config, reader: str) -> Fields:
    """The rotation, for those who cut off of each head what is not turned."""
    rope = with_part_of_heads(config)
    fraction = rope["partial_rotary_factor"]
    if rope["rope_type"] == "proportional" and fraction != 1.0:
        raise ConversionError(
            f"rope_parameters['partial_rotary_factor'] is {fraction} with rope_type "
            f"'proportional', which {reader} cannot express: only 1.0 converts"
        )
    return rope


def with_part_of_heads(config: Config) -> Fields:
    """What is not said is a quarter or a half in theirs and all in ours."""
    return {"partial_rotary_factor": 1.0, **config.rope_parameters}


def said_twice(rope: Fields) -> Fields:
    """Beside yarn, transformers 5.16 would fall back to the part that they turn by default."""
    return {"rope_parameters": rope, "partial_rotary_factor": rope["partial_rotary_factor"]}


FORMATS = (
    Format(
        "stablelm",
        RULES,
        to_ours,
        to_theirs,
        ("StableLmConfig", "StableLmForCausalLM"),
        DECODER,
        IGNORED,
        released="StableLM 3B, StableLM Zephyr 3B, StableLM 2 1.6B",
    ),
)
