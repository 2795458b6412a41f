"""StableLM: Llama with LayerNorm, where a part of each head is turned."""

from .formats import DECODER, Format, carry, inverted, plain_attention_scale, require
from .llama import ALL_OF_THEM, IGNORED, SAME_FIELDS
from .llama import RULES as LLAMA_RULES
from .models import Config, Fields
from .rules import ConversionError, Rule

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
    require(theirs, "hf_tformer", use_parallel_residual=False, qk_layernorm=False)
    if getattr(theirs, "head_dim", None) is not None:  # no field of theirs, and half of it reads it
        require(theirs, "hf_tformer", head_dim=theirs.hidden_size // theirs.num_attention_heads)
    return {**carry(theirs, FIELDS), **FIXED, "rope_parameters": part_of_heads(theirs)}


def to_theirs(ours: Config) -> Fields:
    require(ours, "StableLM", **FIXED, head_dim=ours.hidden_size / ours.num_attention_heads)
    plain_attention_scale(ours, "StableLM")
    rope = part_of_heads(ours)
    return {
        **carry(ours, inverted(FIELDS)),
        "rope_parameters": rope,
        # Said twice: beside yarn, transformers 5.16 would fall back to the quarter.
        "partial_rotary_factor": rope["partial_rotary_factor"],
    }


def part_of_heads(config: Config) -> Fields:
    """What is not said is a quarter in theirs and all in ours."""
    rope = {"partial_rotary_factor": 1.0, **config.rope_parameters}
    fraction = rope["partial_rotary_factor"]
    if rope["rope_type"] == "proportional" and fraction != 1.0:
        raise ConversionError(
            f"rope_parameters['partial_rotary_factor'] is {fraction} with rope_type "
            "'proportional', which StableLM cannot express: only 1.0 converts"
        )
    return rope


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
