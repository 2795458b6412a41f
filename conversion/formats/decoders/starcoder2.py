"""StarCoder2 and Jais 2: Llama's attention, LayerNorm, and an MLP without a gate."""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import require, require_one_kind_of_layer, same, without
from ...engine.rotations import full_rotation
from ...engine.rules import Rule, linear, linears
from ..shared import (
    EMBEDDINGS,
    HEAD,
    LAYER,
    LAYER_NORM_FIELDS,
    LLAMA_FIELDS,
    NEOX_FIXED,
    ONE_BIAS_FOR_ALL,
    ONE_BIAS_FOR_ATTENTION,
    QKVO,
    decoder_format,
)

MODULES = {
    "self_attn_norm": "input_layernorm",
    **same(*QKVO),
    "mlp_norm": "post_attention_layernorm",
    "mlp.up_proj": "mlp.c_fc",
    "mlp.down_proj": "mlp.c_proj",
}
JAIS_MODULES = {**MODULES, **same("mlp.up_proj", "mlp.down_proj")}


def rules(modules: dict[str, str]) -> tuple[Rule, ...]:
    ends = (EMBEDDINGS, *linear("model.norm", "model.norm"), HEAD)
    return (*ends, *linears(LAYER, LAYER, modules))


FIELDS = FieldMap(
    "StarCoder2",
    {
        **without(LLAMA_FIELDS, "rms_norm_eps"),
        "norm_epsilon": "layer_norm_eps",
        "sliding_window": "sliding_window",
        "residual_dropout": "dropout",
        "use_bias": "attention_bias",
    },
    without(NEOX_FIXED, "sliding_window"),
    ONE_BIAS_FOR_ALL,
    full_rotation,
)
JAIS = FieldMap(
    "Jais 2",
    {**LAYER_NORM_FIELDS, **same("attention_bias", "mlp_bias")},
    NEOX_FIXED,
    ONE_BIAS_FOR_ATTENTION,
    full_rotation,
)


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", layer_types=None)  # transformers' model does not read them
    return FIELDS.to_ours(theirs)


def to_theirs(ours: Config) -> Fields:
    fields = {**FIELDS.to_theirs(ours), "embedding_dropout": ours.dropout}
    require_one_kind_of_layer(ours, "StarCoder2")
    # No field of theirs, but read where it is there.
    has_usual_heads = ours.head_dim * ours.num_attention_heads == ours.hidden_size
    return without(fields, "head_dim") if has_usual_heads else fields


FORMATS = (
    decoder_format(
        "starcoder2", "Starcoder2", to_ours, to_theirs, "StarCoder2 3B, 7B and 15B", rules(MODULES)
    ),
    decoder_format(
        "jais2", "Jais2", JAIS.to_ours, JAIS.to_theirs, "Jais 2 8B and 70B", rules(JAIS_MODULES)
    ),
)
