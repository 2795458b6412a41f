"""GLM-4 (of 9B, and of April 2025), Helium, Ernie 4.5: Llama whose rotary positions turn
neighbours."""

from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import carry, plain_attention_scale, require
from ...engine.rotations import full_rotation
from ...engine.rules import Rule
from ...engine.transforms import RotaryPairs
from .llama import ATTENTION, LIKE_LLAMA, RULES, SAME_FIELDS, head_size, llama_format
from .phi3 import FUSED_GATE, GATE_AND_UP

QUERIES, KEYS = RotaryPairs("num_attention_heads"), RotaryPairs("num_key_value_heads")
PAIRS = tuple(
    Rule(f"{ATTENTION}.{x}_proj.{kind}", f"{ATTENTION}.{x}_proj.{kind}", pairs)
    for x, pairs in (("q", QUERIES), ("k", KEYS))
    for kind in ("weight", "bias")
)
TURNED = {rule.ours for rule in PAIRS}
LLAMA_RULES = (*(rule for rule in RULES if rule.ours not in TURNED), *PAIRS)
GLM_RULES = (*(rule for rule in LLAMA_RULES if rule.ours not in GATE_AND_UP), FUSED_GATE)
LAYER = "model.layers.{i}"
# Of April 2025: a norm behind each branch, too.
GLM4_RULES = (
    *GLM_RULES,
    Rule(f"{LAYER}.self_attn_output.weight", f"{LAYER}.post_self_attn_layernorm.weight"),
    Rule(f"{LAYER}.mlp_output.weight", f"{LAYER}.post_mlp_layernorm.weight"),
)

BIASES = ("attention_bias", "attention_output_bias", "mlp_bias")
GLM_FIXED = {**LIKE_LLAMA, "attention_output_bias": False, "mlp_bias": False}
GLM4_FIXED = {**GLM_FIXED, "norm_position": "both"}
GLM_FIELDS = (*SAME_FIELDS, "attention_bias")


def glm_to_ours(theirs: Config, fixed: Fields = GLM_FIXED) -> Fields:
    return {
        **carry(theirs, GLM_FIELDS),
        **fixed,
        "head_dim": head_size(theirs),
        "rope_parameters": dict(theirs.rope_parameters),
    }


def glm_to_theirs(ours: Config, fixed: Fields = GLM_FIXED) -> Fields:
    require(ours, "GLM", **fixed)
    plain_attention_scale(ours, "GLM")
    if ours.eos_token_id is None:
        raise ConversionError(
            "eos_token_id is None, in whose place GLM puts ids of its own: set the id that ends "
            "a text"
        )
    return {
        **carry(ours, (*GLM_FIELDS, "head_dim")),
        # Where it is not said, GLM turns half of each head.
        "rope_parameters": {"partial_rotary_factor": 1.0, **ours.rope_parameters},
    }


HELIUM_FIXED = {**LIKE_LLAMA, "attention_output_bias": False}
HELIUM_FIELDS = (*SAME_FIELDS, "head_dim", "attention_bias", "mlp_bias")


def helium_to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, HELIUM_FIELDS),
        **HELIUM_FIXED,
        "rope_parameters": full_rotation(theirs, "Helium"),
    }


def helium_to_theirs(ours: Config) -> Fields:
    # Its output projection is square.
    width = ours.hidden_size / ours.num_attention_heads
    require(ours, "Helium", **HELIUM_FIXED, head_dim=width)
    plain_attention_scale(ours, "Helium")
    return {**carry(ours, HELIUM_FIELDS), "rope_parameters": full_rotation(ours, "Helium")}


ERNIE_FIELDS = (*(name for name in SAME_FIELDS if name != "attention_dropout"), "head_dim")


def ernie_to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, ERNIE_FIELDS),
        **LIKE_LLAMA,
        **dict.fromkeys(BIASES, bool(theirs.use_bias)),
        "rope_parameters": full_rotation(theirs, "Ernie"),
    }


def ernie_to_theirs(ours: Config) -> Fields:
    require(ours, "Ernie", **LIKE_LLAMA, **dict.fromkeys(BIASES, ours.attention_bias))
    plain_attention_scale(ours, "Ernie")
    return {
        **carry(ours, ERNIE_FIELDS),
        "use_bias": ours.attention_bias,
        "rope_parameters": full_rotation(ours, "Ernie"),
    }


FORMATS = (
    llama_format("glm", "Glm", glm_to_ours, glm_to_theirs, GLM_RULES, "GLM-4 9B, GLM-Edge"),
    llama_format(
        "glm4",
        "Glm4",
        partial(glm_to_ours, fixed=GLM4_FIXED),
        partial(glm_to_theirs, fixed=GLM4_FIXED),
        GLM4_RULES,
        "GLM-4-0414",
    ),
    llama_format("helium", "Helium", helium_to_ours, helium_to_theirs, LLAMA_RULES, "Helium 1"),
    llama_format(
        "ernie4_5", "Ernie4_5", ernie_to_ours, ernie_to_theirs, LLAMA_RULES, "ERNIE 4.5 0.3B"
    ),
)
