"""nanochat: Llama whose norms learn nothing, with heads that turn the other way.

It turns queries and keys before it norms them, ours after. Lengths stay what they are in a turn,
so without weights in these norms and without scales in the rotation the order does not matter.
"""

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import carry, plain_attention_scale, require
from ...engine.rotations import full_rotation
from ...engine.rules import Rule, linear
from ...engine.transforms import Ones, SwappedHalves
from .llama import ATTENTION, LIKE_LLAMA, MLP, SAME_FIELDS, head_size, llama_format

LAYER = "model.layers.{i}"
NORMS = ("model.embed_norm", f"{LAYER}.self_attn_norm", f"{LAYER}.mlp_norm", "model.norm")
TURNING = ("default", "linear", "dynamic", "llama3")
HEADS = {"q": "num_attention_heads", "k": "num_key_value_heads"}
RULES = (
    Rule("model.embed_tokens.weight", "model.embed_tokens.weight"),
    *(
        Rule(f"{ATTENTION}.{x}_proj.{kind}", f"{ATTENTION}.{x}_proj.{kind}", SwappedHalves(heads))
        for x, heads in HEADS.items()
        for kind in ("weight", "bias")
    ),
    *(rule for x in "vo" for rule in linear(f"{ATTENTION}.{x}_proj", f"{ATTENTION}.{x}_proj")),
    Rule(f"{MLP}.up_proj.weight", f"{MLP}.fc1.weight"),
    Rule(f"{MLP}.down_proj.weight", f"{MLP}.fc2.weight"),
    Rule("lm_head.weight", "lm_head.weight"),
    *(Rule(f"{norm}.weight", (), Ones("hidden_size")) for norm in NORMS),
    *(Rule(f"{ATTENTION}.{x}_norm.weight", (), Ones("head_dim")) for x in HEADS),
)

FIELDS = (*SAME_FIELDS, "attention_bias", "final_logit_softcapping")
FIXED = {
    **LIKE_LLAMA,
    "embedding_norm": True,
    "qk_norm": True,
    "mlp_type": "plain",
    "mlp_bias": False,
}


def to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "head_dim": head_size(theirs),
        "attention_output_bias": theirs.attention_bias,
        "rope_parameters": rotation_alone(theirs, "hf_tformer"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "nanochat", **FIXED, attention_output_bias=ours.attention_bias)
    plain_attention_scale(ours, "nanochat")
    return {
        **carry(ours, (*FIELDS, "head_dim")),
        "rope_parameters": rotation_alone(ours, "nanochat"),
    }


def rotation_alone(config: Config, reader: str) -> Fields:
    """Some types (yarn, longrope) scale what they turn, which a norm behind them undoes."""
    rope = full_rotation(config, reader)
    if rope["rope_type"] not in TURNING:
        raise ConversionError(
            f"rope_parameters['rope_type'] is {rope['rope_type']!r}, where nanochat and hf_tformer "
            f"differ: only {', '.join(map(repr, TURNING))} convert"
        )
    return rope


FORMATS = (llama_format("nanochat", "NanoChat", to_ours, to_theirs, RULES, "nanochat"),)
