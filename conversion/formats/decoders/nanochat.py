"""nanochat: Llama whose norms have no weights, and whose heads rotate in the opposite direction.

nanochat rotates queries and keys before it norms them, ours after. A rotation keeps lengths, so the
order does not matter where these norms have no weights and the rotation does not scale.
"""

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import same
from ...engine.rotations import full_rotation
from ...engine.rules import Rule, linears, weights
from ...engine.transforms import Ones, SwappedHalves
from ..shared import EMBEDDINGS, HEAD, LAYER, LLAMA_FIXED, decoder_format, llama_field_map

ATTENTION = f"{LAYER}.self_attn"
NORMS = ("model.embed_norm", f"{LAYER}.self_attn_norm", f"{LAYER}.mlp_norm", "model.norm")
UNSCALED = ("default", "linear", "dynamic", "llama3")  # types of rotation; yarn and longrope scale
HEADS = {"q": "num_attention_heads", "k": "num_key_value_heads"}
RULES = (
    EMBEDDINGS,
    *(
        Rule(f"{ATTENTION}.{x}_proj.{kind}", f"{ATTENTION}.{x}_proj.{kind}", SwappedHalves(heads))
        for x, heads in HEADS.items()
        for kind in ("weight", "bias")
    ),
    *linears(LAYER, LAYER, same("self_attn.v_proj", "self_attn.o_proj")),
    *weights(LAYER, LAYER, {"mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2"}),
    HEAD,
    *(Rule(f"{norm}.weight", (), Ones("hidden_size")) for norm in NORMS),
    *(Rule(f"{ATTENTION}.{x}_norm.weight", (), Ones("head_dim")) for x in HEADS),
)


def unscaled_rotation(config: Config, format_name: str) -> Fields:
    rope = full_rotation(config, format_name)
    if rope["rope_type"] not in UNSCALED:
        raise ConversionError(
            f"rope_parameters['rope_type'] is {rope['rope_type']!r}, where {format_name} and "
            f"hf_tformer differ: only {', '.join(map(repr, UNSCALED))} convert"
        )
    return rope


FIELDS = llama_field_map(
    "nanochat",
    "attention_bias",
    "final_logit_softcapping",
    fixed={
        **LLAMA_FIXED,
        "embedding_norm": True,
        "qk_norm": True,
        "mlp_type": "plain",
        "mlp_bias": False,
    },
    rotation=unscaled_rotation,
)
FORMATS = (
    decoder_format("nanochat", "NanoChat", FIELDS.to_ours, FIELDS.to_theirs, "nanochat", RULES),
)
