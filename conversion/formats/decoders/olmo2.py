"""OLMo-2 and OLMo-3: norms behind each branch, not before it, and one norm over all heads."""

from ...engine.aliases import Config, Fields
from ...engine.format import carry, plain_attention_scale, require
from ...engine.rotations import full_rotation, full_rotations
from ...engine.rules import Rule
from .llama import ALL_OF_THEM, ATTENTION, RULES, SAME_FIELDS, head_size, llama_format, windows

LAYER = "model.layers.{i}"
BEFORE = tuple(f"{LAYER}.{branch}_norm.weight" for branch in ("self_attn", "mlp"))
# Of all whose norms stand behind a branch.
BEHIND = (
    Rule(f"{LAYER}.self_attn_output.weight", f"{LAYER}.post_attention_layernorm.weight"),
    Rule(f"{LAYER}.mlp_output.weight", f"{LAYER}.post_feedforward_layernorm.weight"),
)
BEHIND_ALONE = (*(rule for rule in RULES if rule.ours not in BEFORE), *BEHIND)
OLMO_RULES = (
    *BEHIND_ALONE,
    *(Rule(f"{ATTENTION}.{x}_norm.norm.weight", f"{ATTENTION}.{x}_norm.weight") for x in "qk"),
)

FIXED = {**ALL_OF_THEM, "norm_position": "inside", "qk_norm": "all", "mlp_bias": False}
FIELDS = (*SAME_FIELDS, "attention_bias")


def to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "head_dim": head_size(theirs),
        "attention_output_bias": theirs.attention_bias,
    }


def to_theirs(ours: Config, reader: str) -> Fields:
    require(ours, reader, **FIXED, attention_output_bias=ours.attention_bias)
    plain_attention_scale(ours, reader)
    return carry(ours, (*FIELDS, "head_dim"))


def olmo2_to_ours(theirs: Config) -> Fields:
    return {**to_ours(theirs), "rope_parameters": full_rotation(theirs, "OLMo-2")}


def olmo2_to_theirs(ours: Config) -> Fields:
    require(ours, "OLMo-2", sliding_window=None)
    fields = to_theirs(ours, "OLMo-2")
    return {**fields, "rope_parameters": full_rotation(ours, "OLMo-2")}


def olmo3_to_ours(theirs: Config) -> Fields:
    return {
        **to_ours(theirs),
        **carry(theirs, ("layer_types", "sliding_window")),
        "rope_parameters": full_rotations(theirs, "OLMo-3"),
    }


def olmo3_to_theirs(ours: Config) -> Fields:
    fields = to_theirs(ours, "OLMo-3")
    return {**fields, **windows(ours), "rope_parameters": full_rotations(ours, "OLMo-3")}


FORMATS = (
    llama_format("olmo2", "Olmo2", olmo2_to_ours, olmo2_to_theirs, OLMO_RULES, "OLMo 2"),
    llama_format("olmo3", "Olmo3", olmo3_to_ours, olmo3_to_theirs, OLMO_RULES, "OLMo 3"),
)
